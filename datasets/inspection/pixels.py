"""Pictures by their bytes: writes small PNGs, and tells whole picture files from broken ones without decoding them."""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CONTENT_TYPES", "IMAGE_SUFFIXES", "BrokenImage", "image_type", "picture_kind", "png"]

#: What browsers show, and what training scripts usually read.
CONTENT_TYPES = {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp", "bmp": "image/bmp"}
IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp"})
_PNG = b"\x89PNG\r\n\x1a\n"
_HEAD_BYTES = 32
_TAIL_BYTES = 64


class BrokenImage(ValueError):
    """The message says what is wrong with it."""


@dataclass(frozen=True)
class _Bytes:
    head: bytes
    tail: bytes
    size: int


def png(pixels: bytes, width: int, height: int, *, channels: int) -> bytes:
    """A PNG of 8-bit grey (1 channel) or RGB (3) pixels, row by row."""
    line = width * channels
    rows = b"".join(b"\0" + pixels[start : start + line] for start in range(0, line * height, line))
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    return _PNG + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")


def image_type(head: bytes) -> str | None:
    """A name of CONTENT_TYPES by a file's first bytes, whatever its suffix says."""
    if head.startswith(_PNG):
        return "png"
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "webp"
    return "bmp" if head.startswith(b"BM") else None


def picture_kind(file: Path) -> str:
    """The type of a picture that begins and ends as it must. Raises BrokenImage or OSError."""
    found = _read(file)
    if not found.size:
        raise BrokenImage("is empty")
    kind = image_type(found.head)
    if kind is None:
        raise BrokenImage("is not a picture, whatever its name says")
    if not _is_whole(kind, found):
        raise BrokenImage("is cut off")
    return kind


def _is_whole(kind: str, found: _Bytes) -> bool:
    match kind:
        case "png":
            return b"IEND" in found.tail
        case "jpeg":
            # Cameras add bytes after the end mark.
            return b"\xff\xd9" in found.tail
        case "gif":
            return b"\x3b" in found.tail
        case "webp":
            return found.size >= int.from_bytes(found.head[4:8], "little") + 8
    return found.size >= int.from_bytes(found.head[2:6], "little")


def _read(file: Path) -> _Bytes:
    with file.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL_BYTES))
        return _Bytes(head, stream.read(_TAIL_BYTES), size)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
