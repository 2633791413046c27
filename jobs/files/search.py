"""Search in whole logs in constant memory: the number of matches, and the place of the n-th."""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jobs.files.log_lines import visible
from jobs.files.logs import Log

__all__ = ["MAX_NEEDLE", "Match", "Matches", "search_logs"]

MAX_NEEDLE = 200
#: Time limit of a search; the result says if it was exceeded.
SEARCH_SECONDS = 5.0
_CHUNK_BYTES = 1024**2
#: Size in bytes above which a line is searched in parts; a match across two parts is not found.
_MAX_LINE_BYTES = 4 * 1024**2
_COLOURS = re.compile(rb"\x1b\[[0-9;:]{0,200}m")


@dataclass(frozen=True)
class Match:
    log: Log
    #: Byte offset of its line, and its number among the line's matches, from 0.
    at: int
    nth: int


@dataclass(frozen=True)
class Matches:
    #: Number of matches in the logs, up to where the search stopped.
    count: int
    is_complete: bool
    #: The requested match; None if there are fewer.
    match: Match | None


def search_logs(
    logs: Sequence[Log], needle: str, number: int, *, clock: Callable[[], float] = time.monotonic
) -> Matches:
    """Count the matches in the visible text of these logs, in order, and find the `number`-th, counted from 1.

    ASCII letters match in both cases. Matches do not overlap and do not span lines.
    """
    wanted = needle.encode().lower()
    if b"\n" in wanted:
        return Matches(0, True, None)
    deadline = clock() + SEARCH_SECONDS
    count, match = 0, None
    for log in logs:
        with log.opened() as descriptor:
            for start, data in _chunks(descriptor):
                found = _count(data, wanted)
                if count < number <= count + found:
                    match = _locate(log, start, data, wanted, number - count)
                count += found
                if clock() > deadline:
                    return Matches(count, False, match)
    return Matches(count, True, match)


def _chunks(descriptor: int | None) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, whole lines) of a log."""
    start, rest = 0, b""
    while descriptor is not None and (read := os.pread(descriptor, _CHUNK_BYTES, start + len(rest))):
        data = rest + read
        end = data.rfind(b"\n") + 1 or (len(data) if len(data) >= _MAX_LINE_BYTES else 0)
        if end:
            yield start, data[:end]
        start, rest = start + end, data[end:]
    if rest:
        yield start, rest


def _count(data: bytes, wanted: bytes) -> int:
    shown = _without_colours(data)
    if _is_plain(shown):
        return shown.lower().count(wanted)
    return sum(_count_in_line(line, wanted) for line in data.split(b"\n"))


def _locate(log: Log, start: int, data: bytes, wanted: bytes, number: int) -> Match:
    """Return the `number`-th match in `data`, which has at least that many."""
    for line in data.split(b"\n"):
        found = _count_in_line(line, wanted)
        if number <= found:
            return Match(log, start, number - 1)
        number -= found
        start += len(line) + 1
    raise AssertionError("counted more matches than there are")


def _count_in_line(line: bytes, wanted: bytes) -> int:
    return _shown(line).lower().count(wanted)


def _shown(line: bytes) -> bytes:
    """Return the visible text of a line. Most lines take a short cut, because a log may have gigabytes."""
    shown = _without_colours(line.rstrip(b"\r"))
    if _is_plain(shown):
        return shown
    if b"\x1b" not in line:  # a progress bar: each return restarts the line
        return shown.rpartition(b"\r")[2]
    return visible(line).encode()


def _without_colours(data: bytes) -> bytes:
    return _COLOURS.sub(b"", data).replace(b"\r\n", b"\n") if not _is_plain(data) else data


def _is_plain(data: bytes) -> bool:
    return b"\x1b" not in data and b"\r" not in data
