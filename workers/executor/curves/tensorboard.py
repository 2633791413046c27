"""Parser of scalars in TensorBoard's event files.

A file is records: length (uint64), masked CRC-32C of the length, an `Event` of Protocol Buffers, CRC-32C of that, all
little-endian (tensorflow/core/lib/io/record_writer.h, core/util/event.proto, core/framework/summary.proto). This
parser replaces the tensorboard package, whose 60 MB every host would need; scalars are only three fields deep.
"""

import math
import struct
from collections.abc import Iterator

from workers.executor.curves.parsed_points import Point, cleaned_name

__all__ = ["HEADER_BYTES", "TRAILER_BYTES", "EventFileError", "point_of", "record_length"]

HEADER_BYTES = 12
TRAILER_BYTES = 4
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
#: DataType of a tensor -> `struct` format of its raw content.
_PACKED = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}
_MAX_VALUES = 10_000


class EventFileError(ValueError):
    """The bytes are not those of a complete event file."""


def record_length(header: bytes) -> int:
    """Return the length of the record that follows this header of 12 bytes. Raises EventFileError if it is invalid."""
    length, crc = struct.unpack("<QI", header)
    if _masked_crc32c(header[:8]) != crc:
        raise EventFileError("no record of an event file")
    return int(length)


def point_of(record: bytes) -> Point | None:
    """Return the scalars of an event; None if it has none. Raises EventFileError."""
    step, at, metrics = 0, None, {}
    for number, value in _fields(record):
        if number == 1 and isinstance(value, bytes) and len(value) == 8:
            [at] = struct.unpack("<d", value)
        elif number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            metrics = dict(_scalars(value))
    if not metrics or step >= 2**53 or (at is not None and not math.isfinite(at)):
        return None
    return Point(step, metrics, at=at)


def _scalars(summary: bytes) -> Iterator[tuple[str, float | None]]:
    for count, (number, value) in enumerate(_fields(summary)):
        if count == _MAX_VALUES:
            return
        if number == 1 and isinstance(value, bytes) and (scalar := _scalar(value)):
            yield scalar


def _scalar(value: bytes) -> tuple[str, float | None] | None:
    tag, scalar = "", None
    for number, content in _fields(value):
        if not isinstance(content, bytes):
            continue
        if number == 1:
            tag = cleaned_name(content.decode(errors="replace"))
        elif number == 2 and len(content) == 4:
            [scalar] = struct.unpack("<f", content)
        elif number == 8:
            scalar = _tensor(content)
    if not tag or scalar is None:
        return None
    return tag, scalar if math.isfinite(scalar) else None


def _tensor(tensor: bytes) -> float | None:
    """Return the number in a tensor of one number, as TensorFlow 2 writes a scalar."""
    kind, found = 0, None
    for number, content in _fields(tensor):
        if number == 1 and isinstance(content, int):
            kind = content
        elif number == 2 and any(size != 1 for size in _sizes(content)):
            return None  # an image, a histogram
        elif number in (4, 5, 6) and isinstance(content, bytes):
            form = {4: _PACKED.get(kind, ""), 5: "<f", 6: "<d"}[number]
            if form and len(content) == struct.calcsize(form):
                [found] = struct.unpack(form, content)
    return found


def _sizes(shape: object) -> Iterator[int]:
    if not isinstance(shape, bytes):
        return
    for number, dimension in _fields(shape):
        if number == 2 and isinstance(dimension, bytes):
            yield next((size for key, size in _fields(dimension) if key == 1 and isinstance(size, int)), 0)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of a message: an int for varints, bytes for all other types."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind = key & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
            yield key >> 3, value
            continue
        length = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _BYTES:
            length, place = _varint(message, place)
        if length is None or place + length > len(message):
            raise EventFileError("no message of Protocol Buffers")
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            break
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, place
    raise EventFileError("no number of Protocol Buffers")


def _masked_crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), rotated and shifted as TensorFlow does."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
