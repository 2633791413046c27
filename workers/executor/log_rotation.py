"""Keeps what trainings print from filling the disk: a log has its beginning and its end, and says what is left out.

Ranks write into their files themselves, without anybody in between who could hold them up. So a log may be longer until
it is looked at, and what is printed in the moment between reading the end and writing it anew is lost.
"""

import logging
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = ["KEPT_HEAD_BYTES", "LogKeeper", "Shortened", "log_limit", "shortened_by", "trim"]

logger = logging.getLogger(__name__)

MIB = 1024**2
#: All logs of a job together; one of them; and one of very many.
JOB_BYTES = 1024 * MIB
MOST_BYTES = 64 * MIB
LEAST_BYTES = MIB
#: Of the limit: what stays of the beginning, and of the end. The rest is room until the next time.
_HEAD, _TAIL = 1 / 8, 3 / 8
#: Whoever reads so much of a log's beginning knows whether its middle is left out.
KEPT_HEAD_BYTES = int(MOST_BYTES * _HEAD) + 200
_EVERY_SECONDS = 1.0
_NAMES = "attempt-*/log/*/std???"
_NOTICE = b"[tidepool: %d bytes are left out here: a log keeps its beginning and its end]\n"
_NOTICE_PATTERN = re.compile(re.escape(_NOTICE).replace(rb"%d", rb"([0-9]{1,18})"))


class LogKeeper:
    """Thread that looks after the logs of the jobs on this host. `folders`: those of their attempts."""

    def __init__(self, host: str, folders: Callable[[], Iterable[str]]) -> None:
        self._host = host
        self._folders = folders
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        self._leaving.set()

    def look(self) -> None:
        """Shorten what is too long. The logs of other hosts are theirs to look after."""
        for job in {Path(folder).parent for folder in self._folders()}:
            logs = list(job.glob(_NAMES))
            limit = log_limit(len(logs))
            for log in logs:
                if log.parent.name.endswith(f".{self._host}"):
                    trim(log, limit)

    def _run(self) -> None:
        while not self._leaving.wait(_EVERY_SECONDS):
            try:
                self.look()
            except OSError as error:
                logger.warning("host=%s: logs could not be shortened, tried again: %s", self._host, error)


def log_limit(count: int) -> int:
    """Bytes of each of so many logs of a job."""
    return max(LEAST_BYTES, min(MOST_BYTES, JOB_BYTES // max(1, count)))


class Shortened(NamedTuple):
    """Note in a shortened log: its position, and how many bytes are left out there."""

    start: int
    end: int
    left_out: int


def shortened_by(data: bytes) -> Shortened | None:
    """data: the beginning of a log. None: it is whole so far."""
    found = _NOTICE_PATTERN.search(data)
    return Shortened(found.start(), found.end(), int(found[1])) if found else None


def trim(path: Path, limit: int) -> bool:
    """Leave out the middle of a log that has more bytes than `limit`."""
    try:
        # A script owns its folder: what it puts in the place of its log is not ours to shorten.
        if path.lstat().st_size <= limit:
            return False
        log = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # a link, or gone by now
        return False
    try:
        status = os.fstat(log)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_size <= limit:
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
    """Return where the beginning ends, and what was left out earlier, less the length of the earlier note."""
    data = os.pread(log, most + 200, 0)
    if found := shortened_by(data):
        return found.start, found.left_out - (found.end - found.start)
    return data.rfind(b"\n", 0, most) + 1 or most, 0


def _from_next_line(data: bytes) -> bytes:
    """Return the data without the rest of a first line, unless they are all of one line."""
    return data[data.find(b"\n") + 1 :]
