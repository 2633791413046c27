"""Uploads in pieces. A lost connection costs one piece, and another process can continue the upload.

The upload of each file is stored next to the login, in `uploads.json`, until it is registered. A file is identified by
path, size and modification time.
"""

import hashlib
import json
import logging
import os
import platform
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tidepool.client.config import config_file
from tidepool.client.errors import Conflict, InvalidRequest, NotFound, TidepoolError, Unreachable
from tidepool.client.http import Connection
from tidepool.client.pack import Package, archived
from tidepool.client.training import Progress

__all__ = ["uploaded"]

logger = logging.getLogger(__name__)

_TRIES_OF_A_PIECE = 8
#: Suffixes of single-file datasets; other files are packed.
_DATA_SUFFIXES = (
    *(".zip", ".tar.gz", ".tgz", ".tar"),
    *(".csv", ".tsv", ".json", ".jsonl", ".npy", ".npz", ".parquet", ".txt"),
)
#: Time without a new piece after which the site removes an upload.
_KEPT_SECONDS = 2 * 24 * 3600


@contextmanager
def uploaded(connection: Connection, what: Path | Package, progress: Progress | None = None) -> Iterator[int]:
    """Upload a file, a folder or a package, and yield the number of the finished upload for the request that uses it.

    If that request or the upload fails, the uploaded pieces are kept for another attempt.
    """
    with _as_one_file(what) as (name, file, size):
        key = _key_of(connection.url, what)
        try:
            number = _sent(connection, name, file, size, key, progress)
        except InvalidRequest:
            _give_up(connection, key)
            raise
    yield number
    _remember(key, None)


def _sent(connection: Connection, name: str, file: IO[bytes], size: int, key: str, progress: Progress | None) -> int:
    upload = _begun_before(connection, key, name, size)
    if upload is None:
        upload = connection.json("POST", "uploads/", json={"name": name, "size_bytes": size})
        _remember(key, upload["id"])
    number, offset, piece = int(upload["id"]), int(upload["offset"]), upload["chunk_bytes"]
    if offset and progress is not None:
        progress(offset, size)
    while offset < size:
        file.seek(offset)
        try:
            offset = _send_piece(connection, number, offset, file.read(piece))
        except Unreachable as error:
            share = f"{100 * offset // size}% of {name} is uploaded"
            raise Unreachable(f"{error} {share}: the same command continues from there.", code=error.code) from error
        if progress is not None:
            progress(offset, size)
    return number


def _send_piece(connection: Connection, number: int, offset: int, piece: bytes) -> int:
    """Send a piece and return the offset after it. If the response was lost, ask the site for the offset."""
    headers = {"Upload-Offset": str(offset), "Content-Type": "application/octet-stream"}
    for left in reversed(range(_TRIES_OF_A_PIECE)):
        try:
            sent = connection.json("PATCH", f"uploads/{number}/", content=piece, headers=headers)
        except (Conflict, TidepoolError) as error:
            if isinstance(error, InvalidRequest) or not left:
                raise
            there = int(connection.get(f"uploads/{number}/")["offset"])
            if there != offset:
                return there
            continue
        return int(sent["offset"])
    raise AssertionError("the last try returns or raises")


# --- uploads that were begun before -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Begun:
    number: int
    #: Seconds since the epoch.
    at: float


def _begun_before(connection: Connection, key: str, name: str, size: int) -> Mapping[str, Any] | None:
    """Return an unfinished upload of the same file, if the site still has it."""
    begun = _known().get(key)
    if begun is None:
        return None
    try:
        upload: Mapping[str, Any] = connection.get(f"uploads/{begun.number}/")
    except NotFound:
        return None
    return upload if (upload["name"], upload["size_bytes"]) == (name, size) else None


def _give_up(connection: Connection, key: str) -> None:
    begun = _known().get(key)
    if begun is not None:
        connection.json("DELETE", f"uploads/{begun.number}/")
        _remember(key, None)


def _key_of(url: str, what: Path | Package) -> str:
    """Return a key that is equal for the same files and site (and, for packed files, the same Python)."""
    top = (what.folder if isinstance(what, Package) else what).resolve()
    if isinstance(what, Package):
        files = [top / file for file in what.files]
    else:
        files = [top] if top.is_file() else _files_below(top)
    facts = [(str(file.relative_to(top)), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    packer = "" if top.is_file() else f"{platform.python_version()} {zlib.ZLIB_RUNTIME_VERSION}"
    return hashlib.sha256(json.dumps([url, str(top), facts, packer]).encode()).hexdigest()


def _record() -> Path:
    return config_file().with_name("uploads.json")


def _known() -> dict[str, _Begun]:
    try:
        found = {
            key: _Begun(int(row["number"]), float(row["at"])) for key, row in json.loads(_record().read_text()).items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        logger.warning("%s cannot be read (%s): what was sent before is sent again.", _record(), error)
        return {}
    return {key: begun for key, begun in found.items() if time.time() - begun.at < _KEPT_SECONDS}


def _remember(key: str, number: int | None) -> None:
    """Store the upload of a file; None: remove it."""
    kept = _known()
    if number is None and key not in kept:
        return
    kept.pop(key, None)
    if number is not None:
        kept[key] = _Begun(number, time.time())
    file = _record()
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh.write_text(json.dumps({each: vars(begun) for each, begun in kept.items()}))
        fresh.replace(file)
    except OSError as error:
        logger.warning("%s cannot be written (%s): after a cut all is sent again.", file, error)


# --- several files as one ---------------------------------------------------------------------------------------------


@contextmanager
def _as_one_file(path: Path | Package) -> Iterator[tuple[str, IO[bytes], int]]:
    """Return name, content and size of the upload: the file itself, or an archive of the folder or package."""
    if isinstance(path, Package):
        with _packed(path, path.name) as sent:
            yield sent
        return
    if not path.exists():
        raise InvalidRequest(f"There is no {path}: check the path.")
    if path.is_file():
        if not path.name.lower().endswith(_DATA_SUFFIXES):
            raise InvalidRequest(f"{path} is not an accepted kind of data file:  {', '.join(_DATA_SUFFIXES)}.")
        with path.open("rb") as file:
            yield path.name, file, path.stat().st_size
        return
    files = tuple(file.relative_to(path) for file in _files_below(path))
    total = sum((path / file).stat().st_size for file in files)
    with _packed(Package(path, files, total, "all of it", ""), path.resolve().name) as sent:
        yield sent


@contextmanager
def _packed(code: Package, name: str) -> Iterator[tuple[str, IO[bytes], int]]:
    with archived(code) as archive:
        yield f"{name}.zip", archive, archive.seek(0, 2)


def _files_below(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
