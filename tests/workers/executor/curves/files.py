"""Files of metrics as other programs write them."""

import struct
from collections.abc import Mapping


def crc32c(data: bytes) -> int:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def record(event: bytes) -> bytes:
    header = struct.pack("<Q", len(event))
    return header + struct.pack("<I", masked(header)) + event + struct.pack("<I", masked(event))


def event(step: int, values: Mapping[str, bytes], at: float = 1.5) -> bytes:
    """values: by tag, the rest of a `Summary.Value`."""
    summary = b"".join(field(1, field(1, tag.encode()) + value) for tag, value in values.items())
    return record(b"\x09" + struct.pack("<d", at) + b"\x10" + varint(step) + field(5, summary))


def scalar(value: float) -> bytes:
    return b"\x15" + struct.pack("<f", value)


def tensor(value: float) -> bytes:
    """A scalar of TensorFlow 2: a tensor of one float."""
    return field(8, b"\x08\x01" + field(2, b"") + field(4, struct.pack("<f", value)))


def image() -> bytes:
    return field(4, b"\x08\x02\x10\x02" + field(4, b"png"))
