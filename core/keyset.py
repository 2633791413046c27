"""Keyset pagination of lists: each page costs the same, nothing is counted, and new rows do not shift pages."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.db.models import Model, Q, QuerySet

from core.errors import field_error
from core.text import is_storable, whole
from core.time import iso

__all__ = ["AFTER", "BEFORE", "KeysetPage", "Order", "every_row", "keyset_page"]

#: Parameters of an address that select the rows after or before a row.
AFTER, BEFORE = "after", "before"
_CHUNK = 1000

Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True)
class Order:
    """Order by a column without nulls, then by id in the same direction. An index begins with both."""

    column: str
    descending: bool = False
    #: Function that returns the column's value for the text in an address; None or ValueError if it is invalid.
    parse: Callable[[str], Any] = lambda text: text if is_storable(text) else None

    def columns(self, *, backwards: bool) -> list[str]:
        sign = "-" if self.descending != backwards else ""
        return [f"{sign}{self.column}", f"{sign}id"]


@dataclass(frozen=True)
class _Cursor:
    """A position in the list: after the row with this key, or before it."""

    value: Any
    id: int
    backwards: bool = False


@dataclass(frozen=True)
class KeysetPage(Generic[Row]):
    rows: list[Row]
    #: Values for AFTER and BEFORE as `<value>~<id>`; None at the end and the beginning of the list.
    next: str | None
    previous: str | None


def keyset_page(
    rows: QuerySet[Row], order: Order, given: Mapping[str, str], size: int, *, keys: QuerySet[Row] | None = None
) -> KeysetPage[Row]:
    """Return the page that AFTER or BEFORE in an address selects; without them, the first page.

    keys: the rows of the list without joins; their keys are found by one index before the rows are read.
    """
    return _page(rows, keys, order, _parsed_cursor(order, given.get(AFTER, ""), given.get(BEFORE, "")), size)


def every_row(rows: QuerySet[Row], order: Order, *, keys: QuerySet[Row] | None = None) -> Iterator[Row]:
    """Yield all rows of a list, read page by page."""
    cursor = None
    while True:
        page = _page(rows, keys, order, cursor, _CHUNK)
        yield from page.rows
        if page.next is None:
            return
        cursor = _parsed_cursor(order, page.next, "")


def _parsed_cursor(order: Order, after: str, before: str) -> _Cursor | None:
    text = after or before
    if not text:
        return None
    column, _, row_id = text.rpartition("~")
    number = whole(row_id)
    try:
        value = order.parse(column)
    except (ValueError, OverflowError):
        value = None
    if value is None or number is None:
        sentence = "The address contains an unknown position in the list: start with the first page."
        raise field_error(AFTER if after else BEFORE, sentence)
    return _Cursor(value, number, backwards=not after)


def _page(
    rows: QuerySet[Row], keys: QuerySet[Row] | None, order: Order, cursor: _Cursor | None, size: int
) -> KeysetPage[Row]:
    backwards = cursor is not None and cursor.backwards
    listed = rows if keys is None else keys
    if cursor is not None:
        listed = listed.filter(_beyond(order, cursor))
    listed = listed.order_by(*order.columns(backwards=backwards))
    read = list(listed[: size + 1]) if keys is None else []
    found = [(getattr(row, order.column), row.pk) for row in read]
    if keys is not None:
        found = list(listed.values_list(order.column, "id")[: size + 1])
    has_more, found = len(found) > size, found[:size]
    if backwards and not has_more:  # fewer rows than a page before it: return the first page
        return _page(rows, keys, order, None, size)
    found = found[::-1] if backwards else found
    by_id = {row.pk: row for row in read or rows.filter(pk__in=[number for _, number in found])}
    return KeysetPage(
        # A row that was removed in between is left out.
        [by_id[number] for _, number in found if number in by_id],
        next=_text(found[-1]) if has_more else None,
        previous=_text(found[0]) if cursor is not None and found else None,
    )


def _beyond(order: Order, cursor: _Cursor) -> Q:
    # The first condition bounds the index scan, the second leaves out rows with equal values that are not beyond.
    sign = "lt" if order.descending != cursor.backwards else "gt"
    is_equal_too = Q(**{f"{order.column}__{sign}e": cursor.value})
    return is_equal_too & (Q(**{f"{order.column}__{sign}": cursor.value}) | Q(**{f"id__{sign}": cursor.id}))


def _text(key: tuple[Any, int]) -> str:
    value, number = key
    return f"{iso(value) if isinstance(value, datetime) else value}~{number}"
