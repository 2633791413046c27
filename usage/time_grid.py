"""Steps of a timeline: their beginnings, and the mean number of GPUs in each. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from jobs.gpu_time import DAY, HOUR, MINUTE, NOTHING, Amount, Interval, amount_in, cuts

__all__ = ["MAX_STEPS", "STEPS", "Series", "changes_within", "chosen_step", "edges_of"]

#: Of a timeline that is drawn.
MAX_STEPS = 400
#: Windows up to so long -> the length of a step.
_LONGEST = ((6 * HOUR, MINUTE), (DAY, 5 * MINUTE), (8 * DAY, HOUR), (35 * DAY, 6 * HOUR))
STEPS = (MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 6 * HOUR, DAY)

Milliseconds = NDArray[np.int64]
#: Rows of a series, in the order of `Amount.parts`.
_HELD, _TRAINING = 0, 3


def chosen_step(start: int, end: int, hours_from: int) -> int:
    """Few enough to be drawn. Where only the sums of days are left, days."""
    step = next((step for longest, step in _LONGEST if end - start <= longest), DAY)
    return DAY if HOUR <= step < DAY and start < hours_from else step


def edges_of(start: int, end: int, step: int) -> list[int]:
    """Return the edges from start to end: the first and the last step may be shorter, others begin at multiples."""
    return [start, *(until for _, until in cuts(start, end, step))]


def changes_within(intervals: Iterable[Interval], start: int, end: int) -> list[int]:
    """The moments at which somebody got or gave back a GPU, or began or ended to train on it, with start and end."""
    moments = {start, end}
    for interval in intervals:
        moments.update(at for at in (interval.start, interval.end, *(interval.trains or ())) if start < at < end)
    return sorted(moments)


class Series:
    """Milliseconds held, busy, idle and training in each step."""

    def __init__(self, edges: Sequence[int]) -> None:
        self._edges = edges
        self._steps = max(0, len(edges) - 1)
        self._parts = np.zeros((len(NOTHING.parts), self._steps), np.int64)
        #: How many GPUs began and ended to be held for whole steps at each edge.
        self._whole = np.zeros((len(NOTHING.parts), self._steps + 1), np.int64)

    def add(self, start: int, amount: Amount) -> None:
        """Add a stored sum of the time from `start`, which lies within one step."""
        self._parts[:, self._place(start)] += amount.parts

    def spread(self, interval: Interval, start: int, end: int) -> None:
        """Split the part of an interval that lies in [start, end) by steps."""
        begins, ends = max(start, interval.start, self._edges[0]), min(end, interval.end, self._edges[-1])
        if begins >= ends:
            return
        self._measure(interval, begins, ends)
        self._lay(_HELD, begins, ends, interval.gpus)
        if interval.trains is not None:
            self._lay(_TRAINING, max(begins, interval.trains[0]), min(ends, interval.trains[1]), interval.gpus)

    def _lay(self, row: int, begins: int, ends: int, gpus: int) -> None:
        if begins >= ends:
            return
        first, last = bisect_left(self._edges, begins), bisect_right(self._edges, ends) - 1
        if first > last:  # within one step
            self._parts[row, self._place(begins)] += (ends - begins) * gpus
            return
        if begins < self._edges[first]:
            self._parts[row, first - 1] += (self._edges[first] - begins) * gpus
        if ends > self._edges[last]:
            self._parts[row, last] += (ends - self._edges[last]) * gpus
        self._whole[row, first] += gpus
        self._whole[row, last] -= gpus

    def _measure(self, interval: Interval, begins: int, ends: int) -> None:
        for measure in interval.measures:
            own = replace(interval, measures=(measure,))
            at, until = max(begins, measure.start), min(ends, measure.end)
            while at < until:
                place = self._place(at)
                following = min(until, self._edges[place + 1])
                part = amount_in(own, at, following)
                self._parts[1:3, place] += (part.busy, part.idle)
                at = following

    def _place(self, at: int) -> int:
        return bisect_right(self._edges, at) - 1

    def amounts(self) -> Milliseconds:
        """Four rows: held, busy, idle, training."""
        lengths = np.asarray([until - begins for begins, until in pairwise(self._edges)], np.int64)
        whole: Milliseconds = np.cumsum(self._whole[:, :-1], axis=1, dtype=np.int64) * lengths
        return self._parts + whole

    def means(self) -> list[list[float]]:
        """Return the amounts as mean numbers of GPUs."""
        lengths = np.diff(np.asarray(self._edges, np.float64))
        means = (self.amounts() / lengths).round(4)
        return [[float(value) for value in row] for row in means]
