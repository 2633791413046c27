"""Limit on the size of trainings' logs: a long log keeps its beginning and end, with a notice between them.

Ranks write to their files directly, so that nothing can block them. A log may therefore exceed its limit until the next
round, and output written while the end is moved is lost.
"""

import logging
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from tidepool.safe_open import open_ours

__all__ = ["KEPT_HEAD_BYTES", "LogRotation", "Shortened", "log_limit", "logs_in", "shortened_by", "trim"]

logger = logging.getLogger(__name__)

MIB = 1024**2
#: Limits in bytes: of all logs of a job together, of one log, and of one log if there are very many.
JOB_BYTES = 1024 * MIB
MOST_BYTES = 64 * MIB
LEAST_BYTES = MIB
#: Shares of the limit that the beginning and the end keep. The rest is room until the next round.
_HEAD, _TAIL = 1 / 8, 3 / 8
#: Number of bytes at the beginning of a log that contain the notice, if there is one.
KEPT_HEAD_BYTES = int(MOST_BYTES * _HEAD) + 200
_EVERY_SECONDS = 1.0
_NAMES = ("stdout", "stderr")
#: Number of entries of a folder, and of logs of a job, that are looked at.
_MOST_LOGS = 10_000
#: Parts of a log's path that scripts may have made: attempt, folder of logs, rank, file.
_PARTS = 4
_NOTICE = b"[tidepool: %d bytes are left out here: a log keeps its beginning and its end]\n"
_NOTICE_PATTERN = re.compile(re.escape(_NOTICE).replace(rb"%d", rb"([0-9]{1,18})"))


class LogRotation:
    """Thread that shortens the logs of the jobs on this host. folders: returns the folders of their attempts."""

    def __init__(self, host: str, folders: Callable[[], Iterable[str]]) -> None:
        self._host = host
        self._folders = folders
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log rotation", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        self._leaving.set()

    def look(self) -> None:
        """Shorten the logs of this host's ranks that are too long."""
        for job in {Path(folder).parent for folder in self._folders()}:
            logs = logs_in(job)
            limit = log_limit(len(logs))
            for log in logs:
                if log.parent.name.endswith(f".{self._host}"):
                    trim(log, limit)

    def _run(self) -> None:
        while not self._leaving.wait(_EVERY_SECONDS):
            try:
                self.look()
            except OSError as error:
                logger.warning("host=%s: shortening logs failed, retrying: %s", self._host, error)


def logs_in(job: Path) -> list[Path]:
    """Return the logs of a job's ranks. Scripts may have made more folders than anybody looks at, and links."""
    folders = chain.from_iterable(_folders_in(attempt / "log") for attempt in _folders_in(job) if _is_attempt(attempt))
    logs = (folder / name for folder in folders for name in _NAMES if os.path.isfile(folder / name))
    return [*islice(logs, _MOST_LOGS)]


def _is_attempt(folder: Path) -> bool:
    return folder.name.startswith("attempt-")


def _folders_in(folder: Path) -> Iterator[Path]:
    """Yield the folders in a folder, some thousands at most; none if it is a link."""
    with suppress(OSError):  # removed meanwhile, or closed by the script
        if stat.S_ISDIR(folder.lstat().st_mode):
            with os.scandir(folder) as entries:
                yield from (Path(entry) for entry in islice(entries, _MOST_LOGS) if entry.is_dir(follow_symlinks=False))


def log_limit(count: int) -> int:
    """Return the limit in bytes of each of `count` logs of a job."""
    return max(LEAST_BYTES, min(MOST_BYTES, JOB_BYTES // max(1, count)))


class Shortened(NamedTuple):
    """Notice in a shortened log: its start and end, and the number of bytes left out there."""

    start: int
    end: int
    left_out: int


def shortened_by(data: bytes) -> Shortened | None:
    """Return the notice in the beginning of a log; None if the log is complete."""
    found = _NOTICE_PATTERN.search(data)
    return Shortened(found.start(), found.end(), int(found[1])) if found else None


def trim(path: Path, limit: int) -> bool:
    """Remove the middle of a log that has more bytes than `limit`; return whether it did."""
    try:
        # A script may replace its log, or a folder around it, by something else, which must not be changed.
        if path.lstat().st_size <= limit:
            return False
        log = open_ours(path, os.O_RDWR | os.O_APPEND, parts=_PARTS)
    except OSError:  # a link, or deleted meanwhile
        return False
    try:
        status = os.fstat(log)
        if status.st_nlink != 1 or status.st_size <= limit:
            return False
        _shorten(log, status.st_size, limit)
    finally:
        os.close(log)
    return True


def _shorten(log: int, size: int, limit: int) -> None:
    head, left_out = _head_of(log, int(limit * _HEAD))
    tail = _from_next_line(os.pread(log, int(limit * _TAIL), size - int(limit * _TAIL)))
    left_out += os.fstat(log).st_size - head - len(tail)
    os.ftruncate(log, head)
    rest = memoryview(_NOTICE % left_out + tail)
    while rest:
        rest = rest[os.write(log, rest) :]


def _head_of(log: int, most: int) -> tuple[int, int]:
    """Return the end of the beginning, and the bytes left out earlier minus the length of the earlier notice."""
    data = os.pread(log, most + 200, 0)
    if found := shortened_by(data):
        return found.start, found.left_out - (found.end - found.start)
    return data.rfind(b"\n", 0, most) + 1 or most, 0


def _from_next_line(data: bytes) -> bytes:
    """Return the data from the first complete line on, or all of it if it is a single line."""
    return data[data.find(b"\n") + 1 :]
