"""Regular expressions in searches by name, written between slashes: /^resnet.*-lr0\\.1$/."""

from typing import Any

import re2

__all__ = ["compiled_pattern", "pattern_in"]

_MAX_CHARACTERS = 200
_MAX_MEMORY_BYTES = 1024**2


def pattern_in(search: str) -> str | None:
    """Return the text of the pattern, or None for a search by plain words."""
    is_pattern = len(search) > 2 and search.startswith("/") and search.endswith("/")
    return search[1:-1] if is_pattern else None


def compiled_pattern(text: str) -> Any:
    """Return the pattern, which ignores case and takes linear time. Raises ValueError with a sentence."""
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.max_mem = _MAX_MEMORY_BYTES
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(f"The regular expression has {len(text)} characters: use at most {_MAX_CHARACTERS}.")
    try:
        return re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error.args[0])
        raise ValueError(
            f"The regular expression cannot be used ({reason}): correct it, or search without slashes."
        ) from None
