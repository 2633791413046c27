"""Rows of `tidepool.client.rows` from the JSON of the REST API."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any, TypeVar, cast, get_args, get_origin

__all__ = ["decoded"]

Row = TypeVar("Row")


def decoded(kind: type[Row], values: Mapping[str, Any]) -> Row:
    """Return the row, with times as datetimes and rows within it as rows. Fields that a newer site adds are left out.

    Raises TypeError or ValueError if the JSON is not such a row.
    """
    return kind(**{name: decode(values[name]) for name, decode in _decoders(cast(Any, kind)) if name in values})


@cache
def _decoders(kind: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    return tuple((each.name, _decoder(each.type)) for each in fields(kind))


def _decoder(kind: Any) -> Callable[[Any], Any]:
    """Return the function that converts a JSON value to this type."""
    if kind is datetime:
        return datetime.fromisoformat
    if is_dataclass(kind):
        return partial(decoded, cast(Any, kind))
    inner = [_decoder(each) for each in get_args(kind) if isinstance(each, type)]
    if get_origin(kind) is tuple:
        return lambda values: tuple(inner[0](value) for value in values)
    if type(None) in get_args(kind):
        return lambda value: None if value is None else inner[0](value)
    return lambda value: value
