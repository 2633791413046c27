"""Text that came from outside, made fit for every database and for UTF-8."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["shown_text", "storable"]

#: PostgreSQL has no NUL, and UTF-8 no half of a surrogate pair.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_MOST_SHOWN = 100
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def storable(value: Any) -> Any:
    """The JSON value with a replacement character for each character that cannot be stored."""
    if isinstance(value, str):
        return _UNSTORABLE.sub(_REPLACEMENT, value)
    if isinstance(value, dict):
        return {storable(name): storable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [storable(inner) for inner in value]
    return value


def shown_text(text: str) -> str:
    """As it was sent, but short and on one line: for sentences about it."""
    return text[:_MOST_SHOWN] if text.isprintable() else ascii(text[:_MOST_SHOWN])
