"""NumPy archives (.npz) with an array of images and one of labels, such as the demo's digits."""

import base64
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from datasets.inspection.findings import Findings, PartFindings, Piece, Sample, Tick
from datasets.inspection.pictures import png

__all__ = ["read_arrays"]

FORMAT = "NumPy arrays"
_LABELS = ("labels", "label", "y", "targets", "target")
_IMAGES = ("images", "image", "x", "data")
_MAX_LABELS = 20_000_000
_MAX_CLASSES = 1000
_SAMPLES = 10
#: Number of labels among which samples are searched: images are stored in order and must be read up to the sample.
_LOOKED_AT = 200
_MAX_SIDE = 256
_BROKEN = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, KeyError, NotImplementedError, RuntimeError)


def read_arrays(findings: Findings, piece: Piece, tick: Tick) -> None:
    """Count the classes of labelled images; a damaged file is a problem."""
    for name, file in piece.files.items():
        if name.lower().endswith(".npz"):
            _read_file(findings, piece.findings, name, file)


def _read_file(findings: Findings, part: PartFindings, name: str, file: Path) -> None:
    try:
        with zipfile.ZipFile(file) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            labels = next((members[key] for key in _LABELS if key in members), None)
            images = next((members[key] for key in _IMAGES if key in members), None)
            if labels is None:
                return
            numbers = _numbers(archive, labels)
            _count(part, numbers)
            if not findings.samples and images is not None:
                _add_samples(findings, part.role, archive, images, numbers)
    except _BROKEN as error:
        findings.refuse(f"{name} cannot be read ({error}): write it again with numpy.savez.")


def _numbers(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    with archive.open(info) as stream:
        shape, dtype = _header(stream)
        if len(shape) != 1 or dtype.kind not in "iub" or shape[0] > _MAX_LABELS:
            raise ValueError(f"{info.filename} is not a list of whole numbers")
        return np.frombuffer(_exactly(stream, shape[0] * dtype.itemsize), dtype)


def _count(part: PartFindings, numbers: Any) -> None:
    part.items += len(numbers)
    found, counts = np.unique(numbers, return_counts=True)
    if len(found) > _MAX_CLASSES:
        return
    for number, count in zip(found.tolist(), counts.tolist(), strict=True):
        part.count(str(number), count)


def _add_samples(findings: Findings, role: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, numbers: Any) -> None:
    """Add an image of each of the first classes that occur."""
    with archive.open(info) as stream:
        shape, dtype = _header(stream)
        if len(shape) < 3 or shape[0] != len(numbers):
            raise ValueError(f"it has {len(numbers)} labels for images of shape {shape}")
        sides = _sides(shape[1:])
        if sides is None or dtype.kind not in "iuf":
            return
        seen: set[int] = set()
        size = int(np.prod(shape[1:])) * dtype.itemsize
        for number in numbers[:_LOOKED_AT].tolist():
            values = np.frombuffer(_exactly(stream, size), dtype).reshape(shape[1:])
            if number not in seen:
                seen.add(number)
                findings.samples.append(Sample(str(number), role, png=_picture(values, *sides)))
            if len(seen) >= _SAMPLES:
                return


def _sides(shape: tuple[int, ...]) -> tuple[int, bool] | None:
    """Return (channels, whether they come first) of images that can be shown, else None."""
    match shape:
        case (height, width):
            channels, first = 1, True
        case (1 | 3 as channels, height, width):
            first = True
        case (height, width, 1 | 3 as channels):
            first = False
        case _:
            return None
    return (channels, first) if 0 < height <= _MAX_SIDE and 0 < width <= _MAX_SIDE else None


def _picture(values: Any, channels: int, is_first: bool) -> str:
    """Return a PNG (base64). Bytes are kept; other numbers are scaled from least (black) to most (white)."""
    if values.ndim == 2:
        values = values[None]
    if is_first:
        values = np.moveaxis(values, 0, -1)
    height, width = values.shape[:2]
    if values.dtype != np.uint8:
        values = np.nan_to_num(values.astype(np.float64), posinf=0, neginf=0)
        low, high = values.min(), values.max()
        values = ((values - low) / (high - low or 1) * 255).astype(np.uint8)
    return base64.b64encode(png(values.tobytes(), width, height, channels=channels)).decode()


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], Any]:
    """Return shape and type of an array in C order. Arrays of objects are refused, so nothing is unpickled."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(stream)
    if is_fortran or dtype.hasobject:
        raise ValueError("an array is not in C order, or holds objects")
    return shape, dtype


def _exactly(stream: IO[bytes], size: int) -> bytes:
    content = stream.read(size)
    if len(content) != size:
        raise ValueError("an array is cut off")
    return content
