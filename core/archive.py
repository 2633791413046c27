"""Unpacking of archives that users upload.

The standard library's extraction filters can be bypassed on the Pythons that we support, and an archive's own
declarations may be false. Therefore no archive extracts itself here: only regular files and folders are
recreated, under checked names, and the limits count the bytes that are really read and written. Files are unpacked
into a new folder beside the destination, which is renamed at the end, or removed if anything fails.
"""

import gzip
import os
import secrets
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tidepool.units import size_words

from core.errors import UserError, field_error, if_full

__all__ = ["ARCHIVE_SUFFIXES", "Limits", "store_uploads"]

_CHUNK = 64 * 1024
_MEBIBYTE = 1024**2
_MAX_DEPTH = 32
_MAX_NAME_BYTES = 255
_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz")
ARCHIVE_SUFFIXES = (*_TAR_SUFFIXES, ".zip")
#: Longest single read that unpacking needs; a longer one is a header that would fill the memory.
_MAX_HEADER_BYTES = _MEBIBYTE
#: Exceptions of readers for a damaged archive: ValueError if its directory points before its start, IndexError for an
#: empty name.
_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    LookupError,
    NotImplementedError,
    RuntimeError,
)


@dataclass(frozen=True)
class Limits:
    max_bytes: int
    max_files: int
    #: Largest ratio of written to uploaded bytes, checked once 10 MiB are written.
    max_ratio: float = 200.0


def store_uploads(
    uploads: Sequence[tuple[IO[bytes], str]],
    destination: Path,
    limits: Limits,
    *,
    single: Iterable[str],
    unwrap: bool = False,
) -> None:
    """Put uploads, given as (content, name), side by side into `destination`, a folder that does not exist yet.

    Archives are unpacked, with limits on all uploads together.
    single: suffixes of files that are stored as they are.
    unwrap: if the first upload consists of a single folder, the destination is that folder.
    """
    scratch = destination.with_name(f".incoming-{secrets.token_hex(8)}")
    folder = scratch / "content"
    folder.mkdir(parents=True, mode=0o755)
    budget = _Budget(limits, uploaded_bytes=sum(_size(upload) for upload, _ in uploads))
    name = ""
    try:
        for number, (upload, name) in enumerate(uploads):
            _fill(folder, upload, name, budget, tuple(single))
            if unwrap and number == 0:
                folder = _wrapped(folder)
        folder.rename(destination)
    except UserError:
        raise
    except _BROKEN as error:
        sentence = f"The archive {name!r} cannot be unpacked ({error}): create the archive again."
        full = if_full(error) if isinstance(error, OSError) else None
        raise full or _refused(sentence) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _wrapped(folder: Path) -> Path:
    inner = [path for path in folder.iterdir() if not path.name.startswith("._")]  # without macOS's metadata files
    return inner[0] if len(inner) == 1 and inner[0].is_dir() else folder


def _fill(folder: Path, upload: IO[bytes], name: str, budget: "_Budget", single: tuple[str, ...]) -> None:
    before = budget.files
    lowered = name.lower()
    if lowered.endswith(".zip"):
        entries = _zip_entries(upload, budget.limits)
    elif lowered.endswith(_TAR_SUFFIXES):
        entries = _tar_entries(upload, budget)
    elif lowered.endswith(single):
        entries = iter([(os.path.basename(name), upload)])
    else:
        kinds = ", ".join([*single, *ARCHIVE_SUFFIXES])
        raise _refused(f"The file {name!r} is of a kind that is not accepted: upload one of {kinds}.")
    for entry_name, content in entries:
        _write(folder, entry_name, content, budget)
    if budget.files == before:
        raise _refused(f"The archive {name!r} contains no files.")


#: (name, content) of an archive's entry; the content of a folder is None.
_Entry = tuple[str, IO[bytes] | None]


class _Budget:
    def __init__(self, limits: Limits, *, uploaded_bytes: int) -> None:
        self.limits = limits
        self._uploaded_bytes = max(uploaded_bytes, 1)
        self._entries = 0
        self.files = 0
        self._bytes = 0

    def count_entry(self, *, is_file: bool) -> None:
        self._entries += 1
        self.files += is_file
        if self._entries > self.limits.max_files:
            raise _refused(f"The archive has more than {self.limits.max_files:,} entries: split it.")

    def count_bytes(self, number: int) -> None:
        self._bytes += number
        if self._bytes > self.limits.max_bytes:
            raise _refused(f"The archive is larger than {size_words(self.limits.max_bytes)} when unpacked.")
        if self._bytes > 10 * _MEBIBYTE and self._bytes > self.limits.max_ratio * self._uploaded_bytes:
            raise _refused("The archive is compressed suspiciously well: upload it uncompressed.")


def _write(folder: Path, name: str, content: IO[bytes] | None, budget: _Budget) -> None:
    parts = _safe_parts(name)
    budget.count_entry(is_file=content is not None)
    target = folder.joinpath(*parts)
    try:
        if content is None:
            target.mkdir(parents=True, exist_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise _refused(f"The archive contains {name!r} twice.") from None
    with os.fdopen(descriptor, "wb") as stream:
        while chunk := content.read(_CHUNK):
            budget.count_bytes(len(chunk))
            stream.write(chunk)


def _safe_parts(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in {"", "."}]
    harmful = (
        name.startswith("/")
        or "\\" in name
        or ".." in parts
        or len(parts) > _MAX_DEPTH
        or any(not part.isprintable() or len(part.encode()) > _MAX_NAME_BYTES for part in parts)
        or (bool(parts) and len(parts[0]) == 2 and parts[0][1] == ":")
    )
    if harmful:
        raise _refused(f"The archive has an entry that may not be unpacked, {name[:100]!a}: use plain relative names.")
    return parts


def _tar_entries(upload: IO[bytes], budget: _Budget) -> Iterator[_Entry]:
    compressed = upload.read(2) == b"\x1f\x8b"
    upload.seek(0)
    plain: Any = gzip.GzipFile(fileobj=upload) if compressed else upload
    # "r:" never guesses another compression, and reads a header in one piece, so the meter sees its claimed length.
    with tarfile.open(fileobj=_Metered(plain, budget), mode="r:") as archive:  # type: ignore[call-overload]
        for member in archive:
            if member.isdir():
                yield member.name, None
            elif member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse():
                yield member.name, archive.extractfile(member)
            else:
                raise _refused(
                    f"The archive entry {member.name[:100]!a} is a link or a device: include only regular files."
                )


class _Metered:
    """A tar stream that refuses long reads, and counts skipped contents as read."""

    def __init__(self, stream: IO[bytes], budget: _Budget) -> None:
        self._stream = stream
        self._budget = budget
        self._skipped = 0

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MAX_HEADER_BYTES:
            raise _refused("The archive has a header that is too long: create it again without extended attributes.")
        return self._stream.read(size)

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET:
            raise OSError("tar archives are sought from their beginning")
        ahead = position - self._stream.tell()
        if ahead > 0:
            self._budget.count_bytes(ahead)
        return self._stream.seek(position)

    def tell(self) -> int:
        return self._stream.tell()


def _zip_entries(upload: IO[bytes], limits: Limits) -> Iterator[_Entry]:
    with zipfile.ZipFile(upload) as archive:
        infos = archive.infolist()
        if len(infos) > limits.max_files:
            raise _refused(f"The archive has more than {limits.max_files:,} entries: split it.")
        for info in infos:
            if info.flag_bits & 0x1:
                raise _refused("The archive is encrypted: create it again without a password.")
            if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _refused(
                    f"The archive entry {info.filename[:100]!a} is a link or a device: include only regular files."
                )
            if info.is_dir():
                yield info.filename, None
            else:
                with archive.open(info) as content:
                    yield info.filename, content


def _size(upload: IO[bytes]) -> int:
    upload.seek(0, os.SEEK_END)
    size = upload.tell()
    upload.seek(0)
    return size


def _refused(sentence: str) -> UserError:
    return field_error("file", sentence)
