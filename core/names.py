"""Names that people give to things. They become parts of folder names, so some characters are refused."""

from __future__ import annotations

import unicodedata

from core.errors import field_error

__all__ = ["MAX_NAME_LENGTH", "checked_name"]

MAX_NAME_LENGTH = 255
#: Control, format (invisible, right-to-left override), surrogate, unassigned line and paragraph separators.
_REFUSED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def checked_name(name: str, *, field: str = "name", limit: int = MAX_NAME_LENGTH) -> str:
    """The name in NFC without blanks around it, or an error that says what to change."""
    name = name if any(0xD800 <= ord(letter) <= 0xDFFF for letter in name) else unicodedata.normalize("NFC", name)
    name = name.strip(" ")
    if not name:
        raise field_error(field, "Give it a name.")
    if len(name) > limit:
        raise field_error(field, f"The name has {len(name)} characters: use at most {limit}.")
    if any(unicodedata.category(letter) in _REFUSED_CATEGORIES for letter in name):
        raise field_error(field, "The name has control or invisible characters: use letters, digits and punctuation.")
    if "/" in name or "\\" in name or name.startswith("."):
        raise field_error(field, "The name must not contain a slash or begin with a dot.")
    return name
