"""The job's results as one zip file, made while it is sent: no copy in memory or on disk."""

from __future__ import annotations

import os
import stat
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from jobs.jobfolder import PUBLISHED, job_folder
from jobs.models import Checkpoint, Job
from webapp.lib.errors import NotFound

__all__ = ["checkpoint_chunks", "result_name", "zip_chunks"]

_CHUNK = 256 * 1024


def result_name(job: Job) -> str:
    """A file name without anything that a header or a shell could misread."""
    safe = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_") else "-" for letter in job.name)
    return f"{safe[:80].strip('-') or 'job'}-{job.pk}.zip"


def zip_chunks(job: Job) -> Iterator[bytes]:
    """What the current incarnation published, and the code that was submitted. Links are left out."""
    folder = job_folder(job)
    current = folder.incarnation(job.incarnation)
    if not job.incarnation or not current.is_dir():
        raise NotFound("The job has no results yet: wait until it has started.")
    return _zipped([(current, PUBLISHED), (folder.path, ("_submitted_code",))])


def checkpoint_chunks(checkpoint: Checkpoint) -> Iterator[bytes]:
    path = job_folder(checkpoint.job).path / checkpoint.path
    if not path.is_dir():
        raise NotFound("The files of this checkpoint are gone: a newer one has taken its place.")
    return _zipped([(path.parent, (path.name,))])


class _Sink:
    """Collects what the zip writer has written since the last look."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._position = 0

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        data, self._parts = b"".join(self._parts), []
        return data


def _zipped(sources: list[tuple[Path, tuple[str, ...]]]) -> Iterator[bytes]:
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:  # type: ignore[call-overload]
        for top, names in sources:
            for name, descriptor in _open_files(top, names):
                with os.fdopen(descriptor, "rb") as stream, _entry(archive, name, descriptor) as target:
                    while chunk := stream.read(_CHUNK):
                        target.write(chunk)
                        yield sink.take()
    yield sink.take()


def _entry(archive: zipfile.ZipFile, name: str, descriptor: int) -> IO[bytes]:
    modified = time.gmtime(max(os.fstat(descriptor).st_mtime, 315_619_200))  # zip begins in 1980
    info = zipfile.ZipInfo(name, modified[:6])
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return archive.open(info, "w", force_zip64=True)


def _open_files(top: Path, names: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """(name in the zip, open descriptor) of the regular files, each opened relative to the folder it was found in.

    A training may still be writing here, and may replace a folder by a link at any moment.
    """
    for parent, folders, files, descriptor in os.fwalk(top, follow_symlinks=False):
        if parent == str(top):
            folders[:] = [name for name in folders if name in names]
            files = [name for name in files if name in names]
        # A name with a dot: not published yet, or being removed.
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for name in sorted(files):
            opened = _open_regular(name, descriptor)
            if opened is not None:
                yield os.path.relpath(os.path.join(parent, name), top), opened


def _open_regular(name: str, folder: int) -> int | None:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:  # a link, or gone by now
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None
