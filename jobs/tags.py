"""Tags of trainings: parsing and normalization."""

import re
import unicodedata
from collections.abc import Iterable

from core.errors import field_error
from core.text import is_storable, shown_text

__all__ = ["MOST_TAGS", "folded", "parsed_tags", "searched"]

MOST_TAGS = 20
#: Prefix of tags in the list's search field: `tag:baseline`.
_PREFIX = "tag:"
_LONGEST = 40
_TAG = re.compile(r"\w[\w.:/@+-]*")


def parsed_tags(words: Iterable[str], field: str = "tags") -> list[str]:
    """Return the normalized tags without duplicates. Raises UserError that names the first invalid tag."""
    return list(dict.fromkeys(_parsed(word, field) for word in words))


def _parsed(word: str, field: str) -> str:
    tag = folded(word)
    if not (is_storable(tag) and len(tag) <= _LONGEST and _TAG.fullmatch(tag)):
        raise field_error(
            field,
            f"“{shown_text(word.strip())}” is not a valid tag: write one word of at most {_LONGEST} letters, digits "
            "and . : / @ + - _ that begins with a letter or digit.",
        )
    return tag


def folded(word: str) -> str:
    """Return the word as a normalized tag; the word itself if it cannot be stored."""
    return unicodedata.normalize("NFC", word.strip()).lower() if is_storable(word) else word


def searched(text: str) -> tuple[str, list[str]]:
    """Split a search into the words of the name and the tags after `tag:`."""
    words = text.split()
    tags = [folded(word[len(_PREFIX) :]) for word in words if word.startswith(_PREFIX)]
    if not tags:
        return text, []
    return " ".join(word for word in words if not word.startswith(_PREFIX)), list(dict.fromkeys(tags))
