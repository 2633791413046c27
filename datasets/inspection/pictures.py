"""Checks of pictures in class folders (`cat/1.jpg` is an image of the class `cat`), and types of pictures by bytes.

A check recognises incomplete picture files without decoding them.
"""

import os
import struct
import zlib
from collections import Counter
from pathlib import Path

from datasets.inspection.findings import Findings, PartFindings, Piece, Sample, Tick, file_word

__all__ = ["CONTENT_TYPES", "FORMAT", "IMAGE_SUFFIXES", "image_type", "png", "read_pictures"]

FORMAT = "images in class folders"
_MAX_CLASSES = 10_000
_SAMPLES = 12
_SAMPLES_PER_CLASS = 2
#: Content types of the formats that browsers show and training scripts usually read.
CONTENT_TYPES = {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp", "bmp": "image/bmp"}
IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp"})
_PNG = b"\x89PNG\r\n\x1a\n"
_HEAD_BYTES = 32
_TAIL_BYTES = 64


def read_pictures(findings: Findings, piece: Piece, tick: Tick) -> None:
    """Check that each picture is complete, count classes, and choose some pictures as samples."""
    part, others, outside, read = piece.findings, [], [], 0
    for name, file in piece.files.items():
        if file.suffix.lower() not in IMAGE_SUFFIXES:
            others.append(name)
            continue
        label = _label(part, name)
        if label is None:
            outside.append(name)
        else:
            part.count(label)
        part.items += 1
        try:
            _check_picture(file)
        except (_BrokenImage, OSError) as error:
            findings.refuse(f"{name} {error}: replace or remove it.")
        read += file.stat().st_size
        tick(read)
    _tell(findings, part, others, outside)
    if not findings.samples:
        _add_samples(findings, piece)


def _tell(findings: Findings, part: PartFindings, others: list[str], outside: list[str]) -> None:
    findings.warn_of_others(others)
    if outside and part.classes:
        findings.refuse(
            f"{file_word(len(outside), 'image')} outside the class folders, such as {outside[0]}: move each into "
            "the folder of its class."
        )
    elif outside:
        findings.warn(f"The images of {part.folder or 'the dataset'} are not in class folders, so they have no labels.")
    if len(part.classes) > _MAX_CLASSES:
        findings.refuse(f"There are {len(part.classes):,} class folders: at most {_MAX_CLASSES:,} are allowed.")


def _label(part: PartFindings, name: str) -> str | None:
    """Return the name of the class folder, directly below the part; None for a file outside of class folders."""
    inside = name.removeprefix(f"{part.folder}/") if part.folder else name
    label, slash, _ = inside.partition("/")
    return label if slash else None


def _add_samples(findings: Findings, piece: Piece) -> None:
    """Add samples, alternating between classes, up to the limit."""
    taken: Counter[str] = Counter()
    rounds: list[list[Sample]] = [[] for _ in range(_SAMPLES_PER_CLASS)]
    for name, file in piece.files.items():
        label = _label(piece.findings, name) or ""
        if file.suffix.lower() in IMAGE_SUFFIXES and taken[label] < _SAMPLES_PER_CLASS:
            rounds[taken[label]].append(Sample(label, piece.findings.role, file=name))
            taken[label] += 1
    findings.samples += [sample for samples in rounds for sample in samples][:_SAMPLES]


class _BrokenImage(ValueError):
    """A picture is invalid; the message continues a sentence that begins with the file's name."""


def png(pixels: bytes, width: int, height: int, *, channels: int) -> bytes:
    """Return a PNG of 8-bit grey (1 channel) or RGB (3) pixels, given row by row."""
    line = width * channels
    rows = b"".join(b"\0" + pixels[start : start + line] for start in range(0, line * height, line))
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    return _PNG + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")


def image_type(head: bytes) -> str | None:
    """Return the key in CONTENT_TYPES for a file's first bytes, whatever its suffix; None if it is not a picture."""
    if head.startswith(_PNG):
        return "png"
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "webp"
    return "bmp" if head.startswith(b"BM") else None


def _check_picture(file: Path) -> None:
    """Check the beginning and the end of a picture. Raises _BrokenImage or OSError."""
    with file.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL_BYTES))
        tail = stream.read(_TAIL_BYTES)
    if not size:
        raise _BrokenImage("is empty")
    kind = image_type(head)
    if kind is None:
        raise _BrokenImage("is not an image, despite its name")
    if not _is_whole(kind, head, tail, size):
        raise _BrokenImage("is cut off")


def _is_whole(kind: str, head: bytes, tail: bytes, size: int) -> bool:
    match kind:
        case "png":
            return b"IEND" in tail
        case "jpeg":
            # Cameras add bytes after the end mark.
            return b"\xff\xd9" in tail
        case "gif":
            return b"\x3b" in tail
        case "webp":
            return size >= int.from_bytes(head[4:8], "little") + 8
    return size >= int.from_bytes(head[2:6], "little")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
