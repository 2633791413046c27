"""Files of runs: listed, read, written and removed here, past MLflow's server, which would hold them in its memory.

Below the root lies `<experiment>/<run>/artifacts/...` or `<experiment>/models/<model>/artifacts/...`. A name leads
through folders and to regular files, never through a link. All functions may wait for the disk.
"""

import os
import shutil
import stat
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tidepool.safe_open import open_below

__all__ = ["Missing", "Place", "Writing", "is_too_long", "listed", "open_file", "place_of", "remove"]


#: Begins the names of files that are being written.
_OURS = ".tidepool-"


class Missing(Exception):
    """Nothing that may be read lies there."""


@dataclass(frozen=True)
class Place:
    """Place of files: below an experiment, whose readers may read them."""

    root: Path
    parts: tuple[str, ...]

    @property
    def experiment(self) -> str:
        return self.parts[0]

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)


def is_too_long(path: str) -> bool:
    """Return whether no file can be named so."""
    encoded = path.encode("utf-8", "surrogatepass")
    return len(encoded) > 2_000 or any(len(part) > 255 for part in encoded.split(b"/"))


def place_of(root: Path, path: str) -> Place | None:
    """Parse a path; None for one that leads nowhere or out of the root."""
    parts = tuple(path.strip("/").split("/"))
    is_plain = all(part not in ("", ".", "..") and not part.startswith(_OURS) and "\0" not in part for part in parts)
    return Place(root, parts) if is_plain and parts[0].isdigit() else None


def _folder(place: Place, parts: tuple[str, ...], *, make: bool = False) -> Path:
    """Return the folder, each part of it a folder and no link. Raises Missing."""
    path = place.root
    for part in parts:
        path = path / part
        if make:
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
        try:
            is_folder = stat.S_ISDIR(path.lstat().st_mode)
        except OSError:
            is_folder = False
        if not is_folder:
            raise Missing
    return path


def listed(place: Place) -> list[dict[str, Any]]:
    """List a folder in MLflow's format; empty where it is none."""
    try:
        folder = _folder(place, place.parts)
    except Missing:
        return []
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found.append({"path": entry.name, "is_dir": True})
            elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(_OURS):
                size = entry.stat(follow_symlinks=False).st_size
                found.append({"path": entry.name, "is_dir": False, "file_size": size})
    return sorted(found, key=lambda entry: str(entry["path"]))


def open_file(place: Place) -> tuple[IO[bytes], int]:
    """Return the file and its size in bytes. Raises Missing."""
    descriptor = open_below(place.root, place.parts)
    if descriptor is None:
        raise Missing
    return os.fdopen(descriptor, "rb"), os.fstat(descriptor).st_size


class Writing:
    """A file that is written under another name until it is whole. Raises Missing where a file stands in its way."""

    def __init__(self, place: Place) -> None:
        place.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = _folder(place, place.parts[:-1], make=True)
        self._target = folder / place.parts[-1]
        self._aside = folder / f"{_OURS}{uuid.uuid4().hex}"
        descriptor = os.open(self._aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        self._stream = os.fdopen(descriptor, "wb", buffering=0)

    def write(self, piece: bytes | bytearray) -> None:
        left = memoryview(piece)
        while left:
            left = left[self._stream.write(left) :]

    def finish(self) -> None:
        self._stream.close()
        try:
            self._aside.replace(self._target)
        except IsADirectoryError:
            raise Missing from None

    def discard(self) -> None:
        """Leave nothing of it, unless it is finished."""
        self._stream.close()
        self._aside.unlink(missing_ok=True)


def remove(place: Place) -> None:
    """Remove a file, or a folder with all that is in it. Raises Missing."""
    folder = _folder(place, place.parts[:-1])
    path = folder / place.parts[-1]
    if path.is_symlink() or not path.exists():
        raise Missing
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
