"""Pages of a list by key, not by number: each costs the same, nothing is counted, and new rows shift none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.db.models import Model, Q, QuerySet

from core.errors import UserError
from core.time import iso

__all__ = ["AFTER", "BEFORE", "Cursor", "KeysetPage", "Order", "keyset_page", "parsed_cursor"]

#: The parameters of an address: what comes after a row, or before it.
AFTER, BEFORE = "after", "before"
_MAX_ID = 2**63 - 1

Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True)
class Order:
    """By a column without nulls, then by id in the same direction. An index begins with both."""

    column: str
    descending: bool
    #: The column's value from the text in an address; ValueError where it is none.
    parse: Callable[[str], Any] = str

    def columns(self, *, backwards: bool = False) -> list[str]:
        sign = "-" if self.descending != backwards else ""
        return [f"{sign}{self.column}", f"{sign}id"]


@dataclass(frozen=True)
class Cursor:
    """A place in the list: behind the row with this key, or before it."""

    value: Any
    id: int
    backwards: bool = False


@dataclass(frozen=True)
class KeysetPage(Generic[Row]):
    rows: list[Row]
    #: `<value>~<id>` for AFTER and BEFORE; None at the list's end and beginning.
    next: str | None
    previous: str | None


def parsed_cursor(order: Order, after: str, before: str) -> Cursor | None:
    """The place that an address names; None: the beginning."""
    text = after or before
    if not text:
        return None
    value, _, number = text.rpartition("~")
    try:
        if not (number.isascii() and number.isdecimal() and len(number) < 20 and int(number) <= _MAX_ID):
            raise ValueError(number)
        return Cursor(order.parse(value), int(number), backwards=not after)
    except ValueError:
        sentence = "The address names a place that this list does not have: begin with its first page."
        raise UserError(sentence, fields={AFTER if after else BEFORE: [sentence]}) from None


def keyset_page(
    keys: QuerySet[Row], rows: QuerySet[Row], order: Order, cursor: Cursor | None, size: int
) -> KeysetPage[Row]:
    """The page there: the keys of `keys` by one index, then those of `rows`, which may join and be wide."""
    found = _keys(keys, order, cursor, size + 1)
    if cursor is not None and cursor.backwards:
        if len(found) <= size:  # not a whole page before it: that is the first one
            return keyset_page(keys, rows, order, None, size)
        kept = found[:size][::-1]
        return _page(kept, rows, next_=kept[-1], previous=kept[0])
    kept = found[:size]
    previous = kept[0] if cursor is not None and kept else None
    return _page(kept, rows, next_=kept[-1] if len(found) > size else None, previous=previous)


def _keys(keys: QuerySet[Row], order: Order, cursor: Cursor | None, most: int) -> list[tuple[Any, int]]:
    backwards = cursor is not None and cursor.backwards
    if cursor is not None:
        keys = keys.filter(_beyond(order, cursor))
    return list(keys.order_by(*order.columns(backwards=backwards)).values_list(order.column, "id")[:most])


def _beyond(order: Order, cursor: Cursor) -> Q:
    # The first condition bounds the index, the second leaves out what is equal and not beyond.
    sign = "lt" if order.descending != cursor.backwards else "gt"
    is_equal_too = Q(**{f"{order.column}__{sign}e": cursor.value})
    return is_equal_too & (Q(**{f"{order.column}__{sign}": cursor.value}) | Q(**{f"id__{sign}": cursor.id}))


def _page(
    found: list[tuple[Any, int]],
    rows: QuerySet[Row],
    *,
    next_: tuple[Any, int] | None,
    previous: tuple[Any, int] | None,
) -> KeysetPage[Row]:
    by_id = {row.pk: row for row in rows.filter(pk__in=[number for _, number in found])}
    # One that was removed in between is left out.
    kept = [by_id[number] for _, number in found if number in by_id]
    return KeysetPage(kept, _text(next_), _text(previous))


def _text(key: tuple[Any, int] | None) -> str | None:
    if key is None:
        return None
    value, number = key
    return f"{iso(value) if isinstance(value, datetime) else value}~{number}"
