"""Messages as plain JSON, and back: dataclasses are checked field by field, whoever sent them."""

from __future__ import annotations

import json
import types
import typing
from dataclasses import asdict, fields, is_dataclass
from typing import Any, Literal, TypeVar

__all__ = ["PROTOCOL_VERSION", "ProtocolError", "decode", "encode", "from_json", "to_json"]

PROTOCOL_VERSION = 1


class ProtocolError(ValueError):
    """A message that does not follow this module; the text says which field."""


T = TypeVar("T")


def to_json(message: Any) -> dict[str, Any]:
    """Plain JSON values of a message, ready for Celery."""
    return asdict(message)


def from_json(cls: type[T], values: Any) -> T:
    """Build `cls` from plain JSON values; unknown fields are ignored, so that a newer sender may add some.

    Raises ProtocolError for a missing field, a wrong type, or another `version`.
    """
    if not isinstance(values, dict):
        raise ProtocolError(f"{cls.__name__}: expected an object, got {type(values).__name__}")
    version = values.get("version", PROTOCOL_VERSION)
    if version != PROTOCOL_VERSION:
        raise ProtocolError(f"{cls.__name__}: version {version} is not spoken here (only {PROTOCOL_VERSION})")
    hints = typing.get_type_hints(cls)
    known = {}
    for spec in fields(cls):  # type: ignore[arg-type]
        if spec.name in values:
            known[spec.name] = _convert(hints[spec.name], values[spec.name], f"{cls.__name__}.{spec.name}")
    try:
        return cls(**known)
    except TypeError as error:
        raise ProtocolError(f"{cls.__name__}: {error}") from None


def encode(message: Any) -> bytes:
    """One JSON line."""
    return json.dumps(to_json(message), separators=(",", ":")).encode() + b"\n"


def decode(cls: type[T], line: bytes) -> T:
    try:
        values = json.loads(line)
    except ValueError:
        raise ProtocolError(f"{cls.__name__}: not JSON") from None
    return from_json(cls, values)


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if hint is Any:
        return value
    if is_dataclass(hint):
        return from_json(typing.cast(type, hint), value)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        [inner] = [argument for argument in arguments if argument is not type(None)]
        return _convert(inner, value, where)
    if origin is Literal:
        return _expect(value in arguments, value, where)
    if origin is list:
        _expect(isinstance(value, list), value, where)
        return [_convert(arguments[0], item, where) for item in value]
    if origin is dict:
        _expect(isinstance(value, dict), value, where)
        return {key: _convert(arguments[1], item, where) for key, item in value.items()}
    if hint is float:
        _expect(isinstance(value, int | float) and not isinstance(value, bool), value, where)
        return float(value)
    if hint is int:
        return _expect(isinstance(value, int) and not isinstance(value, bool), value, where)
    return _expect(isinstance(value, hint), value, where)


def _expect(true: bool, value: Any, where: str) -> Any:
    if not true:
        raise ProtocolError(f"{where}: {value!r} does not fit")
    return value
