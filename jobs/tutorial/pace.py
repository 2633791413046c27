"""How long the two trainings must be so that people can watch them share: arithmetic on a short run's metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

__all__ = ["Length", "StepPoint", "choose_lengths", "measured_rate", "steps_per_epoch"]

#: From T1's submission to the change of T2's priority: two starts, two switches, and time to look.
_BEFORE_CHANGE_SECONDS = 25.0
#: How long T1 shall go on after the change.
_AFTER_CHANGE_SECONDS = 20.0
#: While both train on one machine's CPUs, either may be this much faster than the short run was.
_RATE_MARGIN = 1.4
#: T2 gets more GPUs than T1 from the change on (5 to 3), and shall still train on all eight when T1 has ended.
_SECOND_TO_FIRST = 2.0


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
    """From the first epoch, which must be complete: a point of the next one is there."""
    first_epoch = points[0].epoch
    later = [point.step for point in points if point.epoch > first_epoch]
    if not later:
        raise ValueError("the first epoch is not complete")
    return min(later) - points[0].step


def choose_lengths(rate: float, epoch_steps: int) -> Length:
    """Epochs with which T1 outlives the change by 20 s, and T2 outlives T1."""
    seconds = _BEFORE_CHANGE_SECONDS + _AFTER_CHANGE_SECONDS
    first = max(1, math.ceil(_RATE_MARGIN * rate * seconds / epoch_steps))
    return Length(first=first, second=math.ceil(_SECOND_TO_FIRST * first))
