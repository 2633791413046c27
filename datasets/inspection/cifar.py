"""CIFAR-10's python batches: `data_batch_1` ... `data_batch_5`, `test_batch` and the class names in `batches.meta`."""

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidepool.units import size_words

from datasets.inspection.findings import Findings, Piece, Sample, Tick
from datasets.inspection.pickles import NotPlain, RawArray, read_plain_pickle
from datasets.inspection.pictures import png

__all__ = ["FORMAT", "is_batch", "read_batches"]

FORMAT = "CIFAR-10 python batches"
_BATCH = re.compile(r"(?:.*/)?(?:data_batch_\d|test_batch)")
_TEST = "test_batch"
_META = "batches.meta"
_SIDE = 32
_PIXELS = _SIDE * _SIDE * 3
#: Largest batch in bytes; a batch of 10,000 images has 31 MB.
_MAX_BYTES = 256 * 1024**2
_MAX_META_BYTES = 1024**2
_CLASSES = 10


def is_batch(name: str) -> bool:
    return _BATCH.fullmatch(name) is not None


def _batches_of(role: str, names: Sequence[str]) -> list[str]:
    """Return the batches of a part. Each part may contain the whole download, as in IBM's tutorial."""
    batches = [name for name in names if is_batch(name)]
    testing = [name for name in batches if name.endswith(_TEST)]
    training = [name for name in batches if name not in testing]
    wanted = testing if role in {"testing", "validation"} else training
    return wanted or batches


def read_batches(findings: Findings, piece: Piece, tick: Tick) -> None:
    """Count the classes in the part's batches, and keep an image of each class."""
    part, names = piece.findings, _batches_of(piece.findings.role, list(piece.files))
    labels = _label_names(findings, piece.beside, names)
    samples: dict[str, Sample] = {}
    for name in names:
        try:
            numbers, rows = _read_batch(piece.beside[name])
        except NotPlain as error:
            findings.refuse(f"{name} is not a CIFAR-10 batch: {error}. Download it again.")
            continue
        for index, number in enumerate(numbers):
            label = labels[number]
            part.count(label)
            if label not in samples:
                image = _picture(rows[index * _PIXELS : (index + 1) * _PIXELS])
                samples[label] = Sample(label, part.role, png=image)
        part.items += len(numbers)
    findings.samples = findings.samples or list(samples.values())


def _read_batch(file: Path) -> tuple[list[int], bytes]:
    """Return the labels, and the bytes of the images one after the other."""
    values = _plain(file, _MAX_BYTES)
    labels, data = _get(values, "labels"), _get(values, "data")
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < _CLASSES for label in labels):
        raise NotPlain(f"its labels are not numbers from 0 to {_CLASSES - 1}")
    if not isinstance(data, RawArray) or data.dtype not in {"u1", "|u1"}:
        raise NotPlain("its data are not an array of bytes")
    if data.shape != (len(labels), _PIXELS) or len(data.data) != len(labels) * _PIXELS:
        raise NotPlain(f"it has {len(labels)} labels, but its data are not as many images of 32 x 32 pixels")
    return labels, data.data


def _label_names(findings: Findings, files: dict[str, Path], names: Sequence[str]) -> list[str]:
    """Return the class names from `batches.meta` beside the first batch; numbers if it is missing."""
    numbered = [str(number) for number in range(_CLASSES)]
    if not names:
        return numbered
    meta = f"{names[0].rpartition('/')[0]}/{_META}".lstrip("/")
    if meta not in files:
        findings.warn(f"{meta} is missing: classes are shown by their numbers.")
        return numbered
    try:
        given = _get(_plain(files[meta], _MAX_META_BYTES), "label_names")
    except NotPlain as error:
        findings.refuse(f"{meta} cannot be read: {error}. Download it again.")
        return numbered
    words = [word.decode("utf-8", "replace") if isinstance(word, bytes) else word for word in given or []]
    if len(words) != _CLASSES or not all(isinstance(word, str) for word in words):
        findings.refuse(f"{meta} does not name {_CLASSES} classes: download it again.")
        return numbered
    return words


def _plain(file: Path, limit: int) -> dict[Any, Any]:
    if file.stat().st_size > limit:
        raise NotPlain(f"it is larger than {size_words(limit)}")
    values = read_plain_pickle(file.read_bytes())
    if not isinstance(values, dict):
        raise NotPlain("it does not hold a dictionary")
    return values


def _get(values: dict[Any, Any], name: str) -> Any:
    """Return the value of a key, which Python 2 wrote as bytes."""
    return values.get(name.encode(), values.get(name))


def _picture(row: bytes) -> str:
    """Return a PNG (base64) of an image whose row has all red values first, then green, then blue."""
    third = _SIDE * _SIDE
    pixels = bytearray(_PIXELS)
    for channel in range(3):
        pixels[channel::3] = row[channel * third : (channel + 1) * third]
    return base64.b64encode(png(bytes(pixels), _SIDE, _SIDE, channels=3)).decode()
