"""Zip files whose size is known before the first byte: files are stored uncompressed and read while they are sent.

Clients read the size from a header and show the progress of the download.
"""

import os
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO

__all__ = ["SizedZip", "ZipEntry", "ZipSink", "time_in_zip"]

_CHUNK = 256 * 1024
#: Number of files that stay open, because descriptors are limited; further ones are reopened in their turn.
_KEPT_OPEN = 128
#: Earliest and latest time in a zip file, in 1980 and at the end of 2107, in Unix seconds.
_ZIP_BEGINS, _ZIP_ENDS = 315_619_200, 4_354_819_198

_LOCAL, _ZIP64_SIZES, _DESCRIPTOR = 30, 20, 24
_CENTRAL, _EXTRA, _NUMBER = 46, 4, 8
_END, _ZIP64_END = 22, 76


@dataclass(frozen=True)
class ZipEntry:
    """A regular file with an open descriptor, which the zip file takes over."""

    name: str
    descriptor: int
    #: Function that opens the file again as safely; returns None if it is gone.
    reopen: Callable[[], int | None]


@dataclass(frozen=True)
class _File:
    name: str
    size_bytes: int
    #: Device and inode, which identify the file even if its name now leads elsewhere.
    identity: tuple[int, int]
    modified: tuple[int, int, int, int, int, int]
    #: Open stream; None if the file is to be reopened.
    stream: IO[bytes] | None
    reopen: Callable[[], int | None]

    def opened(self) -> IO[bytes]:
        if self.stream is not None:
            return self.stream
        descriptor = self.reopen()
        if descriptor is None:
            raise OSError(f"{self.name} disappeared while the zip was sent")
        stream = os.fdopen(descriptor, "rb")
        if _identity(os.fstat(descriptor)) != self.identity:
            stream.close()
            raise OSError(f"{self.name} has been replaced while the zip was sent")
        return stream


class SizedZip:
    """A zip file that is sent once. Read `size_bytes`, then iterate over `chunks()` or call `close()`."""

    def __init__(self, entries: Iterable[ZipEntry]) -> None:
        self._open = ExitStack()
        self._files: list[_File] = []
        try:
            for entry in entries:
                self._files.append(self._taken(entry))
        except BaseException:
            self.close()
            raise
        self.size_bytes = _size_of(self._files)

    def _taken(self, entry: ZipEntry) -> _File:
        stream, status = os.fdopen(entry.descriptor, "rb"), os.fstat(entry.descriptor)
        is_kept = len(self._files) < _KEPT_OPEN
        if is_kept:
            self._open.enter_context(stream)
        else:
            stream.close()
        modified = time_in_zip(status.st_mtime)
        kept = stream if is_kept else None
        return _File(_storable(entry.name), status.st_size, _identity(status), modified, kept, entry.reopen)

    def close(self) -> None:
        self._open.close()

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the zip file. Raises OSError if a file has become shorter, or is gone and was not kept
        open: the download is then incomplete, which the receiver notices by the size."""
        sink = ZipSink()
        try:
            with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:  # type: ignore[call-overload]
                for file in self._files:
                    with file.opened() as stream:
                        yield from _copied(archive, sink, file, stream)
            yield sink.take()
        finally:
            self.close()


def _copied(archive: zipfile.ZipFile, sink: "ZipSink", file: _File, stream: IO[bytes]) -> Iterator[bytes]:
    left, info = file.size_bytes, zipfile.ZipInfo(file.name, file.modified)
    info.external_attr = 0o644 << 16
    with archive.open(info, "w", force_zip64=True) as target:
        while left:
            chunk = stream.read(min(_CHUNK, left))
            if not chunk:
                raise OSError(f"{file.name} has become shorter while it was sent")
            left -= len(chunk)
            target.write(chunk)
            yield sink.take()


def time_in_zip(seconds: float) -> tuple[int, int, int, int, int, int]:
    """Return a file's time of change as zip files have it: the nearest one that they can have."""
    year, month, day, hour, minute, second, *_ = time.gmtime(min(max(seconds, _ZIP_BEGINS), _ZIP_ENDS))
    return year, month, day, hour, minute, second


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _storable(name: str) -> str:
    """Return the name with bytes replaced that are not UTF-8."""
    return name.encode("utf-8", "replace").decode()


def _size_of(files: list[_File]) -> int:
    """Return the size that `zipfile` writes: 64-bit sizes after each file, and in the directory as needed."""
    limit = zipfile.ZIP64_LIMIT
    offset = directory = 0
    for file in files:
        name = len(file.name.encode())
        numbers = (2 if file.size_bytes > limit else 0) + (1 if offset > limit else 0)
        directory += _CENTRAL + name + (_EXTRA + _NUMBER * numbers if numbers else 0)
        offset += _LOCAL + name + _ZIP64_SIZES + file.size_bytes + _DESCRIPTOR
    is_large = len(files) > zipfile.ZIP_FILECOUNT_LIMIT or offset > limit or directory > limit
    return offset + directory + _END + (_ZIP64_END if is_large else 0)


class ZipSink:
    """A target for `ZipFile` that keeps written bytes until they are taken."""

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
