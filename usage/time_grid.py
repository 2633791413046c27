"""Steps of a timeline: their edges, and the mean number of GPUs in each. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from jobs.gpu_time import DAY, HOUR, MINUTE, NOTHING, Amount, Interval, amount_in, cuts

__all__ = ["MAX_STEPS", "STEPS", "Series", "changes_within", "chosen_step", "edges_of"]

#: Maximum number of steps that a chart shows.
MAX_STEPS = 400
#: (maximum length of a window, length of its steps)
_STEP_LENGTHS = ((6 * HOUR, MINUTE), (DAY, 5 * MINUTE), (8 * DAY, HOUR), (35 * DAY, 6 * HOUR))
STEPS = (MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 6 * HOUR, DAY)

Milliseconds = NDArray[np.int64]
#: Rows of a series, in the order of `Amount.parts`.
_HELD, _TRAINING = 0, 3


def chosen_step(start: int, end: int, hours_from: int) -> int:
    """Return a step length that gives a chart few enough steps; a day where hourly sums were deleted."""
    step = next((step for longest, step in _STEP_LENGTHS if end - start <= longest), DAY)
    return DAY if HOUR <= step < DAY and start < hours_from else step


def edges_of(start: int, end: int, step: int) -> list[int]:
    """Return the edges from start to end at multiples of the step. The first and last step may be shorter."""
    return [start, *(until for _, until in cuts(start, end, step))]


def changes_within(intervals: Iterable[Interval], start: int, end: int) -> list[int]:
    """Return the times in [start, end] at which a GPU was claimed, released, or its training began or ended."""
    moments = {start, end}
    for interval in intervals:
        moments.update(at for at in (interval.start, interval.end, *(interval.trains or ())) if start < at < end)
    return sorted(moments)


class Series:
    """GPU time in each step: milliseconds held, busy, idle and training."""

    def __init__(self, edges: Sequence[int]) -> None:
        self._edges = edges
        self._steps = max(0, len(edges) - 1)
        self._parts = np.zeros((len(NOTHING.parts), self._steps), np.int64)
        #: Change at each edge of the number of GPUs that are held for whole steps.
        self._whole = np.zeros((len(NOTHING.parts), self._steps + 1), np.int64)

    def add(self, start: int, amount: Amount) -> None:
        """Add a stored sum that begins at `start` and lies within one step."""
        self._parts[:, self._step_at(start)] += amount.parts

    def spread(self, interval: Interval, start: int, end: int) -> None:
        """Add the part of an interval that lies in [start, end), split by steps."""
        begins, ends = max(start, interval.start, self._edges[0]), min(end, interval.end, self._edges[-1])
        if begins >= ends:
            return
        self._add_measures(interval, begins, ends)
        self._add_constant(_HELD, begins, ends, interval.gpus)
        if interval.trains is not None:
            self._add_constant(_TRAINING, max(begins, interval.trains[0]), min(ends, interval.trains[1]), interval.gpus)

    def _add_constant(self, row: int, begins: int, ends: int, gpus: int) -> None:
        if begins >= ends:
            return
        first, last = bisect_left(self._edges, begins), bisect_right(self._edges, ends) - 1
        if first > last:  # within one step
            self._parts[row, self._step_at(begins)] += (ends - begins) * gpus
            return
        if begins < self._edges[first]:
            self._parts[row, first - 1] += (self._edges[first] - begins) * gpus
        if ends > self._edges[last]:
            self._parts[row, last] += (ends - self._edges[last]) * gpus
        self._whole[row, first] += gpus
        self._whole[row, last] -= gpus

    def _add_measures(self, interval: Interval, begins: int, ends: int) -> None:
        for measure in interval.measures:
            own = replace(interval, measures=(measure,))
            at, until = max(begins, measure.start), min(ends, measure.end)
            while at < until:
                step = self._step_at(at)
                following = min(until, self._edges[step + 1])
                part = amount_in(own, at, following)
                self._parts[1:3, step] += (part.busy, part.idle)
                at = following

    def _step_at(self, at: int) -> int:
        return bisect_right(self._edges, at) - 1

    def amounts(self) -> Milliseconds:
        """Return four rows in milliseconds: held, busy, idle, training."""
        lengths = np.asarray([until - begins for begins, until in pairwise(self._edges)], np.int64)
        whole: Milliseconds = np.cumsum(self._whole[:, :-1], axis=1, dtype=np.int64) * lengths
        return self._parts + whole

    def means(self) -> list[list[float]]:
        """Return the four rows as mean numbers of GPUs."""
        lengths = np.diff(np.asarray(self._edges, np.float64))
        means = (self.amounts() / lengths).round(4)
        return [[float(value) for value in row] for row in means]
