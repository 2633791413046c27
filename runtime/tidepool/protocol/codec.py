"""Messages as plain JSON values and as JSON lines, and back. Whatever comes in is validated by msgspec."""

import json
from typing import Annotated, Any, Final, TypeVar

import msgspec

__all__ = [
    "PROTOCOL_VERSION",
    "Bytes",
    "Count",
    "Figure",
    "Name",
    "ProtocolError",
    "Seconds",
    "decode",
    "encode",
    "from_json",
    "to_json",
]

PROTOCOL_VERSION: Final = 1

#: Numbers and strings that every database can store; a single invalid one would prevent a whole report from being
#: stored.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
#: Unix time, or a length of time.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
#: A measured value: a number, and a finite one.
Figure = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
Name = Annotated[str, msgspec.Meta(max_length=128)]

T = TypeVar("T")


class ProtocolError(ValueError):
    """A message that does not follow the protocol; the error names the field."""


def to_json(message: msgspec.Struct) -> dict[str, Any]:
    """Plain JSON values of a message, ready for Celery."""
    values: dict[str, Any] = msgspec.to_builtins(message)
    return values


def from_json(cls: type[T], values: Any) -> T:
    """Build `cls` from plain JSON values. Unknown fields are ignored, so that a newer sender may add some.

    Raises ProtocolError for a missing field, a wrong type, or another `version`.
    """
    try:
        return msgspec.convert(values, cls)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"{getattr(cls, '__name__', cls)}: {error}") from None


def encode(message: msgspec.Struct) -> bytes:
    """One JSON line."""
    # Not msgspec.json: it refuses text with lone surrogates, which file names in a script's error may bring, and NaN.
    return json.dumps(to_json(message), separators=(",", ":")).encode() + b"\n"


def decode(cls: type[T], line: bytes) -> T:
    """Build `cls` from a JSON line; see `from_json`."""
    try:
        values = json.loads(line)
    except ValueError:
        raise ProtocolError(f"{cls.__name__}: not JSON") from None
    return from_json(cls, values)
