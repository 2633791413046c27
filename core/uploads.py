"""Uploads in pieces, so that a lost connection or a reloaded page costs one piece and not all.

A client sends name and size, then pieces, each with the offset at which it begins. It asks for the offset if it does
not know it: the size of the file on disk is the only record of the progress.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO

from django.conf import settings
from django.contrib.auth.models import User
from tidepool.units import size_words

from core.errors import Conflict, NotFound, field_error, if_full
from core.file_sources import Source
from core.file_sources import Upload as Content
from core.models import Upload
from core.text import checked_name

__all__ = [
    "CHUNK_BYTES",
    "EMPTY_PIECE",
    "SUFFIXES",
    "WEIGHTS_SUFFIXES",
    "append",
    "begin",
    "discard",
    "file_of",
    "find_upload",
    "finished",
    "finished_file",
    "prune",
    "received",
    "taken",
]

#: Recommended and largest size of a piece in bytes.
CHUNK_BYTES = 4 * 1024**2
_MAX_CHUNK_BYTES = 4 * CHUNK_BYTES
_BUFFER = 256 * 1024
EMPTY_PIECE = "The piece is empty: send bytes of the file."
#: Suffixes of archives, and of files that some app accepts alone.
SUFFIXES = (
    ".zip", ".tar.gz", ".tgz", ".tar",
    ".csv", ".tsv", ".json", ".jsonl", ".npy", ".npz", ".parquet", ".txt", ".py",
    ".safetensors", ".pth", ".pt", ".bin", ".ckpt",
)  # fmt: skip
#: Suffixes of files with the weights of a model, and of archives of several such files.
WEIGHTS_SUFFIXES = (".pth", ".pt", ".bin", ".ckpt", ".safetensors", ".zip")
_MAX_OPEN = 20
#: Time without a piece after which an upload is removed.
KEPT = timedelta(days=2)


def begin(owner: User, name: str, size_bytes: int) -> Upload:
    """Begin an upload. Raises UserError for an invalid name or size, Conflict."""
    name = checked_name(name)
    if not name.lower().endswith(SUFFIXES):
        raise field_error("name", f"A file of this kind is not accepted: upload one of {', '.join(SUFFIXES)}.")
    limit, free = settings.TIDEPOOL_UPLOAD_MAX_BYTES, shutil.disk_usage(settings.TIDEPOOL_HOME).free
    if not 0 < size_bytes <= limit:
        raise field_error(
            "size_bytes", f"The file must have 1 byte to {size_words(limit)}: choose a folder on the server instead."
        )
    if size_bytes > free:
        sentence = f"The server has only {size_words(free)} left: ask an administrator to free space."
        raise field_error("size_bytes", sentence, code="disk_full")
    if Upload.objects.filter(owner=owner).count() >= _MAX_OPEN:
        raise Conflict(f"You have {_MAX_OPEN} unfinished uploads: finish or remove one.")
    upload = Upload(key=secrets.token_hex(16), owner=owner, name=name, size_bytes=size_bytes)
    file_of(upload).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file_of(upload).touch(mode=0o600)
    upload.save()
    return upload


def find_upload(owner: User, upload_id: int) -> Upload:
    """Return an upload of the owner. Raises NotFound, also for staff and other people's uploads."""
    upload = Upload.objects.filter(owner=owner, pk=upload_id).first()
    if upload is None:
        raise NotFound("Upload not found: it may be finished or expired. Start the upload again.")
    return upload


def finished(owner: User, suffixes: tuple[str, ...]) -> list[Upload]:
    """Return the complete uploads, newest first."""
    uploads = [upload for upload in Upload.objects.filter(owner=owner) if upload.name.lower().endswith(suffixes)]
    return [upload for upload in uploads if received(upload) == upload.size_bytes]


def received(upload: Upload) -> int:
    """Return the number of received bytes, which is the offset of the next piece."""
    with suppress(FileNotFoundError):
        return file_of(upload).stat().st_size
    return 0


def append(upload: Upload, offset: int, content: IO[bytes]) -> int:
    """Add a piece, and return the next offset. A piece that cannot be stored whole leaves nothing behind."""
    try:
        descriptor = os.open(file_of(upload), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        sentence = f"The upload cannot be written ({error.strerror}): start the upload again."
        raise if_full(error) or Conflict(sentence) from error
    with os.fdopen(descriptor, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Conflict(
                "Another piece of this file is being written: request the offset and continue there."
            ) from error
        start = file.seek(0, os.SEEK_END)
        if offset != start:
            raise Conflict(f"The next piece begins at byte {start}, not {offset}: continue there.", code="offset")
        try:
            return _copy(content, file, min(_MAX_CHUNK_BYTES, upload.size_bytes - start), start)
        except BaseException:
            file.truncate(start)
            raise


def finished_file(upload: Upload) -> Path:
    """Return the path of the complete file. The caller deletes the row, and later the file. Raises Conflict."""
    if (here := received(upload)) != upload.size_bytes:
        raise Conflict(
            f"{here:,} of {upload.size_bytes:,} bytes of {upload.name} have been received: send the rest first."
        )
    return file_of(upload)


@contextmanager
def taken(owner: User, upload_id: int) -> Iterator[Source]:
    """Yield a finished upload as a source; delete it if the body succeeds. Raises NotFound, Conflict."""
    upload = find_upload(owner, upload_id)
    with finished_file(upload).open("rb") as content:
        yield Source(upload=Content(upload.name, content))
    discard(upload)


def discard(upload: Upload) -> None:
    upload.delete()
    file_of(upload).unlink(missing_ok=True)


def prune(now: datetime) -> int:
    """Remove abandoned uploads, and return their number."""
    stale = [
        upload
        for upload in Upload.objects.filter(created_at__lt=now - KEPT)
        if not file_of(upload).exists() or file_of(upload).stat().st_mtime < (now - KEPT).timestamp()
    ]
    for upload in stale:
        discard(upload)
    return len(stale)


def file_of(upload: Upload) -> Path:
    folder: Path = settings.TIDEPOOL_HOME / "uploads"
    return folder / upload.key


def _copy(content: IO[bytes], file: IO[bytes], room: int, start: int) -> int:
    written = 0
    while chunk := content.read(_BUFFER):
        written += len(chunk)
        if written > room:
            raise field_error("offset", f"The piece is too long: {room:,} bytes are left.")
        try:
            file.write(chunk)
        except OSError as error:
            sentence = f"The server cannot store the piece ({error.strerror}): try again later."
            raise if_full(error) or Conflict(sentence) from error
    if not written:
        raise field_error("offset", EMPTY_PIECE)
    file.flush()
    return start + written
