"""Lines of a log, forwards or backwards from any place, in constant memory: logs have gigabytes, and so may a line.

Places are byte offsets of the beginnings of lines, so a line has the same place however one came to it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from jobs.files.ansi import Span, styled

__all__ = ["MAX_LINE_BYTES", "PIECE_BYTES", "SHOWN_LINE_BYTES", "Line", "Lines", "lines_after", "lines_before"]

PIECE_BYTES = 64 * 1024
#: Of a longer line a part is shown, with its whole length.
SHOWN_LINE_BYTES = 8 * 1024
#: A line that has not ended by then is taken as ended.
MAX_LINE_BYTES = 16 * 1024**2
_SCAN_BYTES = 1024**2


@dataclass(frozen=True)
class Line:
    #: Byte offset of its beginning.
    at: int
    spans: list[Span]
    #: Its whole length where only a part of it is shown, else 0.
    cut_bytes: int = 0


@dataclass(frozen=True)
class Lines:
    #: Where the first line begins.
    start: int
    #: Where the line after the last one begins: `unfinished`, or what is not written yet.
    next: int
    #: Of the whole log when it was read.
    size: int
    lines: list[Line] = field(default_factory=list)
    #: At the end of the log: a line that is still being written.
    unfinished: Line | None = None


def lines_after(descriptor: int, after: int) -> Lines:
    """About `PIECE_BYTES` of lines from `after` on, which is the beginning of a line."""
    size = os.fstat(descriptor).st_size
    after = min(after, size)
    data = os.pread(descriptor, PIECE_BYTES, after)
    end = data.rfind(b"\n") + 1
    if not end and after + len(data) < size:
        return _long_line(descriptor, after, size)
    at_end = after + len(data) >= size
    unfinished = _line(after + end, data[end:]) if at_end and data[end:] else None
    return Lines(after, after + end, size, _split(data[:end], after), unfinished)


def lines_before(descriptor: int, before: int | None) -> Lines:
    """About `PIECE_BYTES` of lines that end at `before`; without it, at the end of the log."""
    size = os.fstat(descriptor).st_size
    before = size if before is None else min(before, size)
    start = max(0, before - PIECE_BYTES)
    data = os.pread(descriptor, before - start, start)
    if start:
        first = data.find(b"\n", 0, len(data) - 1) + 1
        if not first:
            return _long_line(descriptor, _line_start(descriptor, before), size)
        data, start = data[first:], start + first
    end = data.rfind(b"\n") + 1
    unfinished = _line(start + end, data[end:]) if data[end:] else None
    return Lines(start, start + end, size, _split(data[:end], start), unfinished)


def _split(data: bytes, at: int) -> list[Line]:
    """`data` ends with a newline, or is empty."""
    lines = []
    for content in data.split(b"\n")[:-1]:
        lines.append(_line(at, content))
        at += len(content) + 1
    return lines


def _line(at: int, data: bytes) -> Line:
    if len(data) <= SHOWN_LINE_BYTES:
        return Line(at, styled(data))
    return Line(at, styled(_shown(data[:SHOWN_LINE_BYTES], data[-SHOWN_LINE_BYTES:])), len(data))


def _shown(head: bytes, tail: bytes) -> bytes:
    """Of a line that a progress bar wrote again and again the newest state, else the beginning."""
    return tail if b"\r" in tail.rstrip(b"\r\n") else head


def _long_line(descriptor: int, at: int, size: int) -> Lines:
    end, has_ended = _line_end(descriptor, at, size)
    head = os.pread(descriptor, min(SHOWN_LINE_BYTES, end - at), at)
    tail_at = max(at, end - SHOWN_LINE_BYTES)
    line = Line(at, styled(_shown(head, os.pread(descriptor, end - tail_at, tail_at))), end - at)
    return Lines(at, end, size, [line]) if has_ended else Lines(at, at, size, [], line)


def _line_end(descriptor: int, at: int, size: int) -> tuple[int, bool]:
    """(offset behind its newline, True), or (end of the log, False) for a line that is being written."""
    position = at
    while position < min(size, at + MAX_LINE_BYTES):
        data = os.pread(descriptor, min(_SCAN_BYTES, at + MAX_LINE_BYTES - position), position)
        if not data:
            break
        if (found := data.find(b"\n")) >= 0:
            return position + found + 1, True
        position += len(data)
    return position, position >= at + MAX_LINE_BYTES


def _line_start(descriptor: int, before: int) -> int:
    position, least = before - 1, max(0, before - MAX_LINE_BYTES)
    while position > least:
        start = max(least, position - _SCAN_BYTES)
        found = os.pread(descriptor, position - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        position = start
    return position
