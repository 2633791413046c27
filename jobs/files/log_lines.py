"""Lines of a log, read forwards or backwards from any place in constant memory, although logs may have gigabytes.

A line is rendered as in a terminal, to text with styles, without escape sequences and control characters. Only colours
and weights are kept, each as a word of a fixed list. Links, titles, bells and cursor moves are dropped. A carriage
return restarts the line, as for progress bars. Colours end with their line.

Places are byte offsets of the beginnings of lines, so that a line has one place from every direction.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

from tidepool.terminal_text import COMMANDS

__all__ = ["Line", "Lines", "Span", "lines_after", "lines_before", "visible"]

_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_WEIGHTS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike"}
_ENDED_BY = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("inverse",), 29: ("strike",)}
#: All words that a style may consist of.
STYLES = frozenset({*_WEIGHTS.values(), *_COLOURS, *(f"on-{colour}" for colour in _COLOURS)})

_SEQUENCE = re.compile(
    r"\x1b\[(?P<sgr>[0-9;:]{0,200})m"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # other control sequences: cursor, erase
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links, device strings: with what they hold
    r"|\x1b[ -/]*[0-~]?"
    r"|(?P<return>\r)"
)
#: Control characters, and characters that change the order of the text, so that pages show what was written.
_UNSEEN = re.compile(f"[\n\u200e\u200f\ufeff\ud800-\udfff{COMMANDS}]")


@dataclass(frozen=True)
class Span:
    text: str
    style: Annotated[str, "Words such as `bold red`."] = ""


def styled(line: bytes) -> list[Span]:
    """Return the visible text of one line, without its end, as spans of one style each."""
    text = line.decode("utf-8", "replace").rstrip("\r\n")
    spans: list[Span] = []
    style: dict[str, str] = {}
    for part, sequence in _parts(text):
        if shown := _UNSEEN.sub("", part):
            spans.append(Span(shown, " ".join(style.values())))
        if sequence is None:
            break
        if sequence["return"]:
            spans.clear()
        elif sequence["sgr"] is not None:
            _apply(style, sequence["sgr"])
    return spans


def visible(line: bytes) -> str:
    return "".join(span.text for span in styled(line))


def _parts(text: str) -> Iterator[tuple[str, re.Match[str] | None]]:
    """Yield each escape sequence with the text before it, then the rest."""
    start = 0
    for found in _SEQUENCE.finditer(text):
        yield text[start : found.start()], found
        start = found.end()
    yield text[start:], None


def _apply(style: dict[str, str], codes: str) -> None:
    """Apply a "select graphic rendition" sequence to `style` (ink, ground and weights by name)."""
    numbers = iter([int(code) if code else 0 for code in re.split("[;:]", codes[:200]) if len(code) < 5])
    for number in numbers:
        if number == 0:
            style.clear()
        elif number in _WEIGHTS:
            style[_WEIGHTS[number]] = _WEIGHTS[number]
        elif number in _ENDED_BY:
            for name in _ENDED_BY[number]:
                style.pop(name, None)
        elif number in (39, 49):
            style.pop("ink" if number == 39 else "ground", None)
        elif number in (38, 48):
            _set_colour(style, _extended(numbers), is_ground=number == 48)
        elif 30 <= number <= 37 or 90 <= number <= 97:
            _set_colour(style, number % 10, is_ground=False)
        elif 40 <= number <= 47 or 100 <= number <= 107:
            _set_colour(style, number % 10, is_ground=True)


def _set_colour(style: dict[str, str], colour: int | None, *, is_ground: bool) -> None:
    if colour is None:
        return
    name = _COLOURS[colour]
    style["ground" if is_ground else "ink"] = f"on-{name}" if is_ground else name


def _extended(numbers: Iterator[int]) -> int | None:
    """Return the nearest of the eight colours for an index of 256 colours, or for red, green and blue."""
    kind = next(numbers, None)
    if kind == 2:
        return _nearest(next(numbers, 0) for _ in range(3))
    if kind != 5:
        return None
    number = min(next(numbers, 0), 255)
    if number < 16:
        return number % 8
    if number >= 232:
        return 7 if number > 243 else 0
    cube = number - 16
    return _nearest(51 * part for part in (cube // 36, cube // 6 % 6, cube % 6))


def _nearest(rgb: Iterable[int]) -> int:
    parts = list(rgb)
    half = max(max(parts) / 2, 64)
    return sum((part > half) << place for place, part in enumerate(parts))


PIECE_BYTES = 64 * 1024
#: Bytes of a longer line that are shown, with its whole length.
SHOWN_LINE_BYTES = 8 * 1024
#: Bytes after which an unfinished line counts as finished.
MAX_LINE_BYTES = 16 * 1024**2
_SCAN_BYTES = 1024**2


@dataclass(frozen=True)
class Line:
    at: Annotated[int, "Byte offset of the line."]
    spans: list[Span]
    cut_bytes: Annotated[int, "Length in bytes of a line that is shown in part, else 0."] = 0


@dataclass(frozen=True)
class Lines:
    #: Byte offset of the first line.
    start: int
    next: Annotated[int, "Byte offset of the line after the last one."]
    #: Size of the whole log when it was read.
    size: int
    lines: list[Line] = field(default_factory=list)
    #: Line at the end of the log that is still being written.
    unfinished: Line | None = None


def lines_after(descriptor: int, after: int) -> Lines:
    """Return about `PIECE_BYTES` of lines from `after` on, which is the beginning of a line."""
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
    """Return about `PIECE_BYTES` of lines that end at `before`, or at the end of the log."""
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
    """Split `data`, which is empty or ends with a newline, into lines."""
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
    """Return the last state of a line that a progress bar rewrote, otherwise the beginning."""
    return tail if b"\r" in tail.rstrip(b"\r\n") else head


def _long_line(descriptor: int, at: int, size: int) -> Lines:
    end, has_ended = _line_end(descriptor, at, size)
    head = os.pread(descriptor, min(SHOWN_LINE_BYTES, end - at), at)
    tail_at = max(at, end - SHOWN_LINE_BYTES)
    line = Line(at, styled(_shown(head, os.pread(descriptor, end - tail_at, tail_at))), end - at)
    return Lines(at, end, size, [line]) if has_ended else Lines(at, at, size, [], line)


def _line_end(descriptor: int, at: int, size: int) -> tuple[int, bool]:
    """Return (offset after its newline, True), or (end of the log, False) for a line that is being written."""
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
