"""Parallel coordinates: an axis for each column, a line for each row. Pure; `templates/_parallel.html` draws them."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.templatetags.tidepool import figure

__all__ = ["Axis", "Column", "Drawing", "DrawnAxis", "DrawnLine", "Scale", "axes_of", "drawing", "word"]

#: Highest number of different words on an axis.
_MOST_WORDS = 12
#: Ratio of the ends from which an axis of positive numbers is logarithmic.
_LOG_FROM = 100.0
#: Highest number of intervals between the ticks of an axis.
_TICKS = 5
#: Measures of the drawing, in units of its view box.
_HEIGHT, _TOP, _GAP, _SIDE = 300, 40, 150, 70
_SHADES = 6


@dataclass(frozen=True)
class Column:
    """Setting or result with the value of each row, in the order of the rows; None if the row has none."""

    #: `setting` for settings and parameters, `metric` for results.
    kind: str
    name: str
    values: Sequence[Any]
    #: Whether the axis is logarithmic; None: it is if the numbers are far apart.
    log: bool | None = None

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def words(self) -> list[str]:
        return [word(value) for value in self.values]

    @property
    def differs(self) -> bool:
        return len(set(self.words)) > 1

    @property
    def numbers(self) -> list[float | None]:
        """Return the values that are finite numbers, with None for each other one."""
        return [value if _is_number(value) else None for value in self.values]


@dataclass(frozen=True)
class Scale:
    """Numbers at the ends of an axis."""

    low: float
    high: float
    log: bool


@dataclass(frozen=True)
class Axis:
    column: Column
    #: Position of each row, from 0 at the bottom to 1; None if it has no value.
    places: Sequence[float | None]
    #: (position, text) of each tick.
    ticks: Sequence[tuple[float, str]]
    #: Numbers at the ends; None: the axis has words, one at each tick.
    scale: Scale | None = None


@dataclass(frozen=True)
class DrawnAxis:
    x: int
    name: str
    #: (y, text) of each tick.
    ticks: list[tuple[float, str]]


@dataclass(frozen=True)
class DrawnLine:
    #: Number of the row, by which a table beside the drawing finds it.
    key: int
    label: str
    #: Data of the SVG path; "" if no two neighbouring axes have a value.
    path: str
    #: Index of the colour's shade, by the value on the last axis, 0 for the lowest; `none` without a value there.
    shade: int | str


@dataclass(frozen=True)
class Drawing:
    axes: list[DrawnAxis]
    lines: list[DrawnLine]
    width: int
    height: int = _HEIGHT + _TOP + 20
    top: int = _TOP
    bottom: int = _TOP + _HEIGHT


def word(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.5g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def axes_of(columns: Sequence[Column]) -> list[Axis]:
    """Return an axis for each column that has numbers, or a few different words."""
    return [axis for column in columns if (axis := _axis(column))]


def drawing(rows: Sequence[tuple[int, str]], axes: Sequence[Axis]) -> Drawing:
    """Return the drawing. rows: key and label of each line."""
    drawn = [
        DrawnAxis(_x(number), axis.column.name, [(_y(place), text) for place, text in axis.ticks])
        for number, axis in enumerate(axes)
    ]
    lines = [
        DrawnLine(key, label, _path(axes, number), _shade(axes, number)) for number, (key, label) in enumerate(rows)
    ]
    return Drawing(drawn, lines, 2 * _SIDE + _GAP * max(0, len(axes) - 1))


def _axis(column: Column) -> Axis | None:
    present = [value for value in column.values if value is not None]
    if present and all(_is_number(value) for value in present):
        return _numeric_axis(column, [float(value) for value in present])
    words = sorted(set(map(word, present)))
    if not 1 < len(words) <= _MOST_WORDS:
        return None
    place = {text: number / (len(words) - 1) for number, text in enumerate(words)}
    places = [None if value is None else place[word(value)] for value in column.values]
    return Axis(column, places, [(at, text) for text, at in place.items()])


def _numeric_axis(column: Column, numbers: Sequence[float]) -> Axis | None:
    low, high = min(numbers), max(numbers)
    if low == high:
        return None
    is_log = low > 0 and (high / low >= _LOG_FROM if column.log is None else column.log)
    scale = math.log if is_log else float
    start, span = scale(low), scale(high) - scale(low)
    places = [None if value is None else (scale(value) - start) / span for value in column.values]
    ticks = _powers_of_ten(low, high) if is_log else _round_steps(low, high)
    if len(ticks) < 2:  # a logarithmic axis within one power of ten
        ticks = [low, high]
    drawn = [((scale(value) - start) / span, figure(value)) for value in ticks]
    return Axis(column, places, drawn, Scale(low, high, is_log))


def _powers_of_ten(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return [10.0**power for power in range(first, last + 1, max(1, math.ceil((last - first) / _TICKS)))]


def _round_steps(low: float, high: float) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten, two to six of them."""
    power = 10.0 ** math.floor(math.log10((high - low) / _TICKS))
    step = next(power * factor for factor in (1, 2, 5, 10) if (high - low) / (power * factor) <= _TICKS)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _path(axes: Sequence[Axis], number: int) -> str:
    """Return the SVG path through a row's position on each axis, with a gap at axes where it has no value."""
    words, is_begun = [], False
    for at, axis in enumerate(axes):
        place = axis.places[number]
        if place is not None:
            words.append(f"{'L' if is_begun else 'M'}{_x(at)} {_y(place):.1f}")
        is_begun = place is not None
    return " ".join(words) if any(word.startswith("L") for word in words) else ""


def _shade(axes: Sequence[Axis], number: int) -> int | str:
    place = axes[-1].places[number] if axes else None
    return "none" if place is None else min(_SHADES - 1, int(place * _SHADES))


def _x(number: int) -> int:
    return _SIDE + _GAP * number


def _y(place: float) -> float:
    return round(_TOP + _HEIGHT * (1 - place), 1)
