"""One line as a terminal would show it, as text with styles: no escape sequence, no control character gets through.

Only colours and weights are kept, each as a word of a fixed list. Links, titles, bells and cursor moves are dropped.
A carriage return begins the line anew, as progress bars mean it. Colours end with their line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["STYLES", "Span", "styled", "visible"]

_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_WEIGHTS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike"}
_ENDED_BY = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("inverse",), 29: ("strike",)}
#: All the words that a style may be made of.
STYLES = frozenset({*_WEIGHTS.values(), *_COLOURS, *(f"on-{colour}" for colour in _COLOURS)})

_SEQUENCE = re.compile(
    r"\x1b\[(?P<sgr>[0-9;:]{0,200})m"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # other control sequences: cursor, erase
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links, device strings: with what they hold
    r"|\x1b[ -/]*[0-~]?"
    r"|(?P<return>\r)"
)
#: Control characters, and those that turn the order of what follows: what is shown must be what was written.
_UNSEEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]|[\ud800-\udfff]")


@dataclass(frozen=True)
class Span:
    text: str
    #: Words of `STYLES`, joined by blanks.
    style: str = ""


def styled(line: bytes) -> list[Span]:
    """The visible text of one line, without its end, in runs of one style."""
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
    """The text before each sequence with that sequence, and the rest."""
    start = 0
    for found in _SEQUENCE.finditer(text):
        yield text[start : found.start()], found
        start = found.end()
    yield text[start:], None


def _apply(style: dict[str, str], codes: str) -> None:
    """Change `style` (ink, ground and weights by name) as a "select graphic rendition" sequence says."""
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
    """The nearest of the eight colours to one of 256, or to one given by red, green and blue."""
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
