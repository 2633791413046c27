"""Text: names and references from requests, numbers, characters that no database can store, plurals."""

import re
import unicodedata
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.utils.translation import ngettext
from tidepool.terminal_text import COMMANDS

from core.errors import field_error

__all__ = [
    "LARGEST_ID",
    "MAX_NAME_LENGTH",
    "by_reference",
    "checked_name",
    "is_readable_json",
    "is_storable",
    "plural",
    "readable_text",
    "shown_text",
    "storable",
    "whole",
]

MAX_NAME_LENGTH = 255
#: Largest number that a column of ids holds.
LARGEST_ID = 2**63 - 1
#: Characters that cannot be stored: PostgreSQL has no NUL, and UTF-8 no lone surrogate.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
#: Characters that make terminals do something or change the order of a text, and those that cannot be stored.
_CONTROLS = re.compile(f"[{COMMANDS}\ud800-\udfff]")
#: Escapes in JSON that may stand for one of these.
_ESCAPED = re.compile(r"\\[bfru]")
#: Escape sequences of terminals: colours, titles, links, the clipboard.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\)?)|\r(?=\n)")
#: Unicode categories that names must not contain: control, format (invisible), surrogate, separators of lines.
_REFUSED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_MOST_SHOWN = 100

Row = TypeVar("Row", bound=Model)


def checked_name(name: str, *, field: str = "name", limit: int = MAX_NAME_LENGTH) -> str:
    """Return the name in NFC without surrounding blanks, valid as part of a folder's name. Raises UserError."""
    name = (unicodedata.normalize("NFC", name) if is_storable(name) else name).strip(" ")
    if not name:
        raise field_error(field, "Enter a name.")
    if len(name) > limit:
        raise field_error(field, f"The name has {len(name)} characters: use at most {limit}.")
    if any(unicodedata.category(letter) in _REFUSED_CATEGORIES for letter in name):
        raise field_error(field, "The name has control or invisible characters: use letters, digits and punctuation.")
    if "/" in name or "\\" in name or name.startswith("."):
        raise field_error(field, "The name must not contain a slash or begin with a dot.")
    return name


def by_reference(rows: QuerySet[Row], reference: int | str, *, name: str = "name") -> Row | None:
    """Return the row with this name or, if there is none, with this id, or None. `name`: the column of names."""
    text = str(reference)
    named = rows.filter(**{name: text}).first() if is_storable(text) else None
    number = whole(text)
    return named if named is not None or number is None else rows.filter(pk=number).first()


def whole(text: str, most: int = LARGEST_ID) -> int | None:
    """Return the text as a whole number from 0 to `most`, or None."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and int(text) <= most
    return int(text) if is_number else None


def is_storable(text: str) -> bool:
    """Return whether the database can store the text."""
    return not _UNSTORABLE.search(text)


def is_readable_json(text: str) -> bool:
    """Return whether `readable_text` changes no string in the JSON. False also for other escaped characters."""
    return not _ESCAPED.search(text) and not _CONTROLS.search(text)


def storable(value: Any) -> Any:
    """Return the JSON value with a replacement character for each character that cannot be stored."""
    return _changed(value, partial(_UNSTORABLE.sub, "\N{REPLACEMENT CHARACTER}"))


def readable_text(value: Any) -> Any:
    """Return the JSON value without what makes terminals do something or turns a text around: a script may have
    written it.

    Escape sequences are left out, and other such characters replaced.
    """
    return _changed(value, _without_controls)


def _without_controls(text: str) -> str:
    if not _CONTROLS.search(text):
        return text
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", _ESCAPES.sub("", text))


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """Return the JSON value with all of its strings changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(name): _changed(inner, change) for name, inner in value.items()}
    if isinstance(value, list):
        return [_changed(inner, change) for inner in value]
    return value


def plural(count: int, one: str, several: str, **params: Any) -> str:
    """Return `one` or `several`, with `{count}` and the params filled in."""
    return ngettext(one, several, count).format(count=count, **params)


def shown_text(text: str) -> str:
    """Return the text shortened and on one line, to be quoted in a sentence."""
    return text[:_MOST_SHOWN] if text.isprintable() else ascii(text[:_MOST_SHOWN])
