"""What must be seen, and how it is read from the allocation series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

__all__ = ["Expected", "Point", "Seen", "find", "moments", "pause_at", "table", "violations"]


@dataclass(frozen=True)
class Point:
    """A line of `jobs/{id}/allocation/`: the ranks trained with this many from this moment on."""

    at: datetime
    slots: int
    attempt: int
    pause_ms: float | None


@dataclass(frozen=True)
class Expected:
    """A moment: the sizes that both trainings have at once. None: it has no GPU, not yet or not any more."""

    title: str
    first: int | None
    second: int | None


@dataclass(frozen=True)
class Seen:
    expected: Expected
    #: Seconds from T1's submission to the later of the switches.
    after_seconds: float
    pauses_ms: tuple[float | None, float | None]


def moments(slots: int) -> list[Expected]:
    """The tutorial's table for a cluster of `slots` GPUs; 8 gives 1, 8, 4 and 4, 3 and 5, 8."""
    half = slots // 2
    # max-min fair by priority 5000 : 10000, floored, the rest to the larger fraction.
    third = _share(slots, 5000, 10000)
    return [
        Expected("T1 starts", 1, None),
        Expected("T1 takes every GPU", slots, None),
        Expected("T2 gets its half", half, slots - half),
        Expected("T2's priority is 10000", third, slots - third),
        Expected("T1 has ended, T2 takes all", None, slots),
    ]


def find(expected: Expected, first: Sequence[Point], second: Sequence[Point], after: datetime) -> datetime | None:
    """When both trainings first had the expected sizes, not before `after`; None if they have not yet."""
    wanted = (expected.first or 0, expected.second or 0)
    times = sorted({after, *(point.at for point in (*first, *second) if point.at > after)})
    for at in times:
        if (_size_at(first, at), _size_at(second, at)) == wanted:
            return at
    return None


def violations(name: str, series: Sequence[Point]) -> list[str]:
    """Sentences about a training that stopped or started again before its end."""
    sizes = [point.slots for point in series]
    while sizes and sizes[0] == 0:
        sizes.pop(0)
    found = []
    if 0 in sizes[:-1]:
        found.append(f"{name} stopped in between: {sizes}.")
    if len({point.attempt for point in series if point.slots > 0}) > 1:
        found.append(f"{name} was started again in between.")
    return found


def table(seen: Sequence[Seen]) -> list[str]:
    lines = [f"{'Moment':<28} {'T1':>4} {'T2':>4} {'after':>9} {'pause T1':>10} {'pause T2':>10}"]
    for row in seen:
        sizes = f"{_number(row.expected.first):>4} {_number(row.expected.second):>4}"
        pauses = " ".join(f"{_pause(pause):>10}" for pause in row.pauses_ms)
        lines.append(f"{row.expected.title:<28} {sizes} {row.after_seconds:>7.1f} s {pauses}")
    return lines


def pause_at(series: Sequence[Point], at: datetime) -> float | None:
    """How long training stood still for the switch in force at `at`; None before its first."""
    past = [point for point in series if point.at <= at and point.slots > 0]
    return past[-1].pause_ms if past else None


def _size_at(series: Sequence[Point], at: datetime) -> int:
    past = [point.slots for point in series if point.at <= at]
    return past[-1] if past else 0


def _share(slots: int, own: int, other: int) -> int:
    exact = slots * own / (own + other)
    floor = int(exact)
    return floor + 1 if exact - floor > 0.5 else floor


def _number(size: int | None) -> str:
    return "-" if size is None else str(size)


def _pause(pause_ms: float | None) -> str:
    return "-" if pause_ms is None else f"{pause_ms:.0f} ms"
