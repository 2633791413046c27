"""Checks one version from claim to result: unpack its archive, inspect its files, store what was found."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from django.utils import timezone

from core.archive import store_upload
from core.errors import UserError
from core.sources import upload_limits
from datasets.actions.checks import Claim, ClaimLost, claim_next, finish, note_progress, note_unpacked, refuse
from datasets.inspection.inspect import inspect
from datasets.models import DatasetVersion

__all__ = ["SINGLE_SUFFIXES", "check", "check_at_once_if_small"]

#: Taken as they are; everything else comes in an archive.
SINGLE_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".npy", ".npz", ".parquet", ".txt")
#: What is smaller is checked in the request that registers it: that takes less time than waiting for a checker.
_SMALL_BYTES = 16 * 1024**2
_SMALL_FILES = 500
_TELL_SECONDS = 0.4
#: Of the work with an archive: unpacking it.
_UNPACKING = 0.5


def check(claim: Claim, asked_to_stop: Callable[[], bool] = lambda: False) -> DatasetVersion:
    """READY or INVALID. Raises ClaimLost, or Stopped with the claim still held."""
    version = claim.version
    teller = _Teller(claim, asked_to_stop)
    try:
        if version.archive:
            _unpack(claim, lambda part: teller.tell(_UNPACKING * part))
            teller.begin_at(_UNPACKING)
        found = inspect(version.parts, version.dataset.kind, teller.tell)
    except UserError as error:
        return refuse(claim, error.message)
    except OSError as error:
        why = error.strerror or str(error)
        return refuse(claim, f"{version.path} cannot be read ({why}): check that it is there, then check again.")
    return finish(claim, found)


def check_at_once_if_small(version: DatasetVersion) -> DatasetVersion:
    """The version, checked where that is a matter of moments."""
    if version.archive or not _is_small(version):
        return version
    claim = claim_next(timezone.now(), only=version.pk)
    try:
        return check(claim) if claim else version
    except ClaimLost:
        # It took so long that a checker has begun anew.
        version.refresh_from_db()
        return version


class Stopped(Exception):
    """The process was asked to end."""


class _Teller:
    """Stores progress a few times per second."""

    def __init__(self, claim: Claim, asked_to_stop: Callable[[], bool]) -> None:
        self._claim = claim
        self._asked_to_stop = asked_to_stop
        self._told_at = time.monotonic()
        self._start = 0.0

    def begin_at(self, start: float) -> None:
        self._start = start

    def tell(self, part: float) -> None:
        if self._asked_to_stop():
            raise Stopped
        if time.monotonic() - self._told_at < _TELL_SECONDS:
            return
        self._told_at = time.monotonic()
        note_progress(self._claim, self._start + (1 - self._start) * part)


def _unpack(claim: Claim, tell: Callable[[float], None]) -> None:
    version = claim.version
    archive, folder = Path(version.archive), Path(version.path)
    # What a checker that died has left behind: it had not said that it is whole.
    shutil.rmtree(folder, ignore_errors=True)
    with archive.open("rb") as stream:
        told = cast(IO[bytes], _Told(stream, tell))
        store_upload(told, version.archive_name, folder, upload_limits(), single=SINGLE_SUFFIXES)
    note_unpacked(claim)
    archive.unlink(missing_ok=True)


class _Told(io.BufferedIOBase):
    """A file that says how much of it was read."""

    def __init__(self, stream: IO[bytes], tell: Callable[[float], None]) -> None:
        self._stream = stream
        self._size = max(1, os.fstat(stream.fileno()).st_size)
        self._tell = tell

    def read(self, size: int | None = -1, /) -> bytes:
        content = self._stream.read(-1 if size is None else size)
        # Archives are read from their beginning but for the directory of a .zip, at its end.
        self._tell(min(self._stream.tell() / self._size, 0.99))
        return content

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


def _is_small(version: DatasetVersion) -> bool:
    """Looks at no more than it must: a folder may have millions of files."""
    budget = {"files": _SMALL_FILES, "bytes": _SMALL_BYTES}
    try:
        return all(_fits(part.folder, budget) for part in version.parts)
    except OSError:
        # The check says what is the matter.
        return True


def _fits(folder: Path, budget: dict[str, int]) -> bool:
    if folder.is_file():
        return folder.stat().st_size <= budget["bytes"]
    with os.scandir(folder) as entries:
        return all(_entry_fits(entry, budget) for entry in entries)


def _entry_fits(entry: os.DirEntry[Any], budget: dict[str, int]) -> bool:
    budget["files"] -= 1
    if entry.is_dir(follow_symlinks=False):
        return budget["files"] >= 0 and _fits(Path(entry.path), budget)
    budget["bytes"] -= entry.stat(follow_symlinks=False).st_size
    return budget["files"] >= 0 and budget["bytes"] >= 0
