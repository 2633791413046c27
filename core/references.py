"""References to rows by number or by name."""

from __future__ import annotations

from typing import TypeVar

from django.db.models import Model, QuerySet

__all__ = ["by_reference", "is_storable"]

Row = TypeVar("Row", bound=Model)
_MAX_ID = 2**63 - 1


def by_reference(rows: QuerySet[Row], reference: int | str, *, name: str = "name") -> Row | None:
    """The row with this name or, where no name fits, with this id. `name`: the column of names."""
    text = str(reference)
    named = rows.filter(**{name: text}).first() if is_storable(text) else None
    if named is not None or not _is_id(text):
        return named
    return rows.filter(pk=int(text)).first()


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= _MAX_ID


def is_storable(text: str) -> bool:
    """PostgreSQL refuses NUL, and UTF-8 has no lone surrogates: no row can have such a name."""
    return "\0" not in text and not any(0xD800 <= ord(letter) <= 0xDFFF for letter in text)
