"""Searches whole logs for a text, in constant memory: the count of its matches, and the place of the n-th."""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jobs.files.log_lines import visible
from jobs.files.logs import Log

__all__ = ["MAX_NEEDLE", "Match", "Matches", "search_logs"]

MAX_NEEDLE = 200
#: A longer search stops and says so: who asks waits for it.
SEARCH_SECONDS = 5.0
_CHUNK_BYTES = 1024**2
#: A longer line is searched in parts; a match over the border of two is not found.
_MAX_LINE_BYTES = 4 * 1024**2
_COLOURS = re.compile(rb"\x1b\[[0-9;:]{0,200}m")


@dataclass(frozen=True)
class Match:
    log: Log
    #: Byte offset of the beginning of its line, and the how many-th match in that line it is, from 0.
    at: int
    nth: int


@dataclass(frozen=True)
class Matches:
    #: In all of the logs, or up to where the search was stopped.
    count: int
    is_complete: bool
    #: The one that was asked for, None if there are fewer.
    match: Match | None


def search_logs(
    logs: Sequence[Log], needle: str, number: int, *, clock: Callable[[], float] = time.monotonic
) -> Matches:
    """Count the matches in what people see of these logs, one after the other, and find the `number`-th from 1.

    A to z match A to Z. Matches do not overlap and do not span lines.
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
    """(offset, whole lines) of a log."""
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
    """The `number`-th match in `data`, which has that many."""
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
    """The line as people see it. All but rare lines take a short way: a log may have gigabytes."""
    shown = _without_colours(line.rstrip(b"\r"))
    if _is_plain(shown):
        return shown
    if b"\x1b" not in line:  # a progress bar: each return begins the line anew
        return shown.rpartition(b"\r")[2]
    return visible(line).encode()


def _without_colours(data: bytes) -> bytes:
    return _COLOURS.sub(b"", data).replace(b"\r\n", b"\n") if not _is_plain(data) else data


def _is_plain(data: bytes) -> bool:
    return b"\x1b" not in data and b"\r" not in data
