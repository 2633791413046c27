"""The tutorial's arithmetic: what must be seen, how it is read from the allocation series, and how long the two
trainings must be so that people can watch them share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import dropwhile

__all__ = [
    "Expected",
    "Length",
    "Point",
    "Seen",
    "StepPoint",
    "choose_lengths",
    "find",
    "measured_rate",
    "moments",
    "pause_at",
    "steps_per_epoch",
    "table",
    "violations",
]

#: From T1's submission to the change of T2's priority: two starts and two switches. Two looks come on top.
_BEFORE_CHANGE_SECONDS = 17.0
#: Number of looks that T1 shall train on for after the change.
_LOOKS_AFTER_CHANGE = 5
#: While both train on one machine's CPUs, either may be this much faster than the short run was.
_RATE_MARGIN = 1.4
#: T2 gets more GPUs than T1 from the change on (5 to 3), and shall still train on all eight when T1 has ended.
_SECOND_TO_FIRST = 2.0


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
    """Return the tutorial's table for a cluster of `slots` GPUs; 8 gives 1, 8, 4 and 4, 3 and 5, 8."""
    half = slots // 2
    third = round(slots / 3)  # priorities 5000 : 10000; the rest goes to the larger fraction
    return [
        Expected("T1 starts", 1, None),
        Expected("T1 takes every GPU", slots, None),
        Expected("T2 gets its half", half, slots - half),
        Expected("T2's priority is 10000", third, slots - third),
        Expected("T1 has ended, T2 takes all", None, slots),
    ]


def find(expected: Expected, first: Sequence[Point], second: Sequence[Point], after: datetime) -> datetime | None:
    """Return when both trainings first had the expected sizes, not before `after`; None if they have not yet."""
    wanted = (expected.first or 0, expected.second or 0)
    times = sorted({after, *(point.at for point in (*first, *second) if point.at > after)})
    for at in times:
        if (_size_at(first, at), _size_at(second, at)) == wanted:
            return at
    return None


def violations(name: str, series: Sequence[Point]) -> list[str]:
    """Sentences about a training that stopped or started again before its end."""
    sizes = list(dropwhile(lambda size: size == 0, [point.slots for point in series]))
    found = []
    if 0 in sizes[:-1]:
        found.append(f"{name} stopped in between: {sizes}.")
    if len({point.attempt for point in series if point.slots > 0}) > 1:
        found.append(f"{name} was started again in between.")
    return found


def table(seen: Sequence[Seen]) -> list[str]:
    lines = [f"{'Moment':<28} {'T1':>4} {'T2':>4} {'after':>9} {'pause T1':>10} {'pause T2':>10}"]
    for row in seen:
        sizes = f"{row.expected.first or '-':>4} {row.expected.second or '-':>4}"
        pauses = " ".join(f"{_pause(pause):>10}" for pause in row.pauses_ms)
        lines.append(f"{row.expected.title:<28} {sizes} {row.after_seconds:>7.1f} s {pauses}")
    return lines


def pause_at(series: Sequence[Point], at: datetime) -> float | None:
    """Return how long training stood still for the switch in force at `at`; None before its first."""
    past = [point for point in series if point.at <= at and point.slots > 0]
    return past[-1].pause_ms if past else None


def _size_at(series: Sequence[Point], at: datetime) -> int:
    past = [point.slots for point in series if point.at <= at]
    return past[-1] if past else 0


def _pause(pause_ms: float | None) -> str:
    return "-" if pause_ms is None else f"{pause_ms:.0f} ms"


@dataclass(frozen=True)
class StepPoint:
    step: int
    epoch: int
    at: datetime


@dataclass(frozen=True)
class Length:
    """Epochs of T1 and T2."""

    first: int
    second: int


def measured_rate(points: Sequence[StepPoint]) -> float:
    """Steps per second over the points, which are in order and at least two."""
    first, last = points[0], points[-1]
    seconds = (last.at - first.at).total_seconds()
    if last.step <= first.step or seconds <= 0:
        raise ValueError("a rate needs two steps at different times")
    return (last.step - first.step) / seconds


def steps_per_epoch(points: Sequence[StepPoint]) -> int:
    """Count the steps of the first epoch, which must be complete: a point of the next one is there."""
    first_epoch = points[0].epoch
    later = [point.step for point in points if point.epoch > first_epoch]
    if not later:
        raise ValueError("the first epoch is not complete")
    return min(later) - points[0].step


def choose_lengths(rate: float, epoch_steps: int, look_seconds: float) -> Length:
    """Epochs with which T1 outlives the change by five looks, and T2 outlives T1."""
    seconds = _BEFORE_CHANGE_SECONDS + (2 + _LOOKS_AFTER_CHANGE) * look_seconds
    first = max(1, math.ceil(_RATE_MARGIN * rate * seconds / epoch_steps))
    return Length(first=first, second=math.ceil(_SECOND_TO_FIRST * first))
