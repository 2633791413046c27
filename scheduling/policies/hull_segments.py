"""Slots given to jobs by what they are worth: segments of all hulls, the one that is worth most per slot first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from scheduling.policies.goodput_bids import Bid

__all__ = ["NO_KIND", "Floats", "Given", "HullSegments", "Integers"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: Stands for the kind of a job that gets its floor and no more.
NO_KIND = -1


@dataclass
class Given:
    """What jobs get, by their place in line, and what is left over, by the place of the kind."""

    slots: Integers
    #: Utility of these slots to each job. 0 where it is on no kind.
    worth: Floats
    #: Slots that are left of each kind, and of all kinds together.
    left: list[int]
    spare: int
    #: Worth of a slot of each kind in the first segment that did not fit.
    prices: dict[int, float] = field(default_factory=dict)
    #: Worth of the slots beyond the floors.
    gained: float = 0.0
    #: Upper bound on what it can be, where there is one kind. None: no job wanted more.
    bound: float | None = None


class HullSegments:
    """Segments of the hulls of all jobs on all kinds that they bid for, in the order in which they are given: by worth
    per slot, then by their place on the hull, then by the job's place in line."""

    def __init__(self, bids: Sequence[Sequence[Bid | None]], kinds: int = 1) -> None:
        """bids: those of each job in line, one for each of so many kinds; None: the job cannot be on it."""
        self._bids = bids
        self._floors = np.array(
            [next((bid.floor for bid in row if bid is not None), 0) for row in bids], dtype=np.int64
        )
        at_floor = [[0.0 if bid is None else bid.corners[0][1] for bid in row] for row in bids]
        self._worth_of_floors = np.array(at_floor, dtype=np.float64).reshape(len(bids), kinds)
        rows = [
            (cost, place, job, kind, after[0], after[0] - before[0], after[1])
            for job, row in enumerate(bids)
            for kind, bid in enumerate(row)
            if bid is not None
            for place, (cost, (before, after)) in enumerate(zip(bid.slopes, pairwise(bid.corners), strict=True))
        ]
        table = np.array(rows, dtype=np.float64).reshape(-1, 7)
        table = table[np.lexsort((table[:, 2], table[:, 1], table[:, 0]))]
        #: Worth per slot, negated, and utility at the end of each segment.
        self._cost, self._worth = table[:, 0].copy(), table[:, 6].copy()
        self._job, self._kind = table[:, 2].astype(np.int64), table[:, 3].astype(np.int64)
        #: Slots at the end of each segment, and how many more these are than at its beginning.
        self._after, self._more = table[:, 4].astype(np.int64), table[:, 5].astype(np.int64)

    def given(self, kinds: Integers, rooms: Sequence[int], spare: int) -> Given:
        """Give each job its floor, and `spare` slots beyond all floors, of each kind no more than `rooms` says.

        kinds: the kind of each job, or `NO_KIND`.
        """
        worth = np.where(kinds == NO_KIND, 0.0, self._worth_of_floors[np.arange(len(kinds)), kinds])
        found = Given(self._floors.copy(), worth, list(rooms), spare)
        there = np.flatnonzero(kinds[self._job] == self._kind)
        runs = [there[self._kind[there] == kind] for kind in range(len(rooms))]
        ends = [_fitting(self._more[run], room) for run, room in zip(runs, rooms, strict=True)]
        if spare >= sum(max(0, room) for room in rooms):
            for run, end in zip(runs, ends, strict=True):
                self._give(found, run, end)
        else:  # Not all of the rooms may be used, so all kinds take turns.
            firsts = [run[end] for run, end in zip(runs, ends, strict=True) if end < len(run)]
            end = int(np.searchsorted(there, min(firsts))) if firsts else len(there)
            self._give(found, there, min(end, _fitting(self._more[there], spare)))
        return found

    def _give(self, found: Given, run: Integers, end: int) -> None:
        """Give segments in this order, the first `end` of which fit."""
        fits, rest = run[:end], run[end:]
        found.slots[self._job[fits]] = self._after[fits]  # that of the job's last segment stays
        found.worth[self._job[fits]] = self._worth[fits]
        for kind, more in enumerate(np.bincount(self._kind[fits], self._more[fits]).tolist()):
            found.left[kind] -= int(more)
            found.spare -= int(more)
        found.gained -= float(self._cost[fits] @ self._more[fits])
        if len(found.left) == 1 and len(rest):
            found.bound = found.gained - float(self._cost[rest[0]]) * max(0, found.spare)
        cut = self._give_rest(found, rest)
        self._give_odd_sizes(found, cut)

    def _give_rest(self, found: Given, rest: Integers) -> dict[int, int]:
        """Give those that fit of the other segments; returns the jobs of the first ones that do not, and their
        kinds."""
        cut: dict[int, int] = {}
        given: set[int] = set()
        kinds = np.unique(self._kind[rest]).tolist()
        for segment in map(int, rest):
            if min(found.spare, max(found.left[kind] for kind in kinds)) <= 0:
                break
            job, kind, more = int(self._job[segment]), int(self._kind[segment]), int(self._more[segment])
            if job in cut:
                continue
            if more > min(found.spare, found.left[kind]):
                cut[job] = kind
                continue
            given.add(segment)
            found.slots[job], found.worth[job] = self._after[segment], self._worth[segment]
            found.left[kind] -= more
            found.spare -= more
            found.gained -= float(self._cost[segment]) * more
        for kind in kinds:
            lacking = (one for one in map(int, rest[self._kind[rest] == kind]) if one not in given)
            if (first := next(lacking, None)) is not None:
                found.prices[kind] = -float(self._cost[first])
        return cut

    def _give_odd_sizes(self, found: Given, cut: Mapping[int, int]) -> None:
        """Give slots that nobody can use in whole segments to the jobs that were cut."""
        has_parts = set[int]()
        for job, kind in cut.items():
            bid, slots, spare = self._bids[job][kind], int(found.slots[job]), min(found.spare, found.left[kind])
            if spare <= 0 or bid is None:
                continue
            # Only one job of a kind may have parts of several hosts: two would compete for the network of a host.
            more = _odd_size(bid, slots, spare, within_host=kind in has_parts)
            if not more:
                continue
            if slots + more > bid.host:
                has_parts.add(kind)
            found.gained += bid.utility(slots + more) - bid.utility(slots)
            found.slots[job], found.worth[job] = slots + more, bid.utility(slots + more)
            found.left[kind] -= more
            found.spare -= more


def _fitting(more: Integers, room: int) -> int:
    """Return how many of these segments fit, one after the other."""
    return int(np.searchsorted(np.cumsum(more), room, side="right"))


def _odd_size(bid: Bid, slots: int, spare: int, *, within_host: bool) -> int:
    """Return how many of the slots that nobody can use in whole segments serve this job best."""
    most = min(spare, bid.most - slots, bid.host - slots if within_host else spare)
    gains = [(bid.utility(slots + more) - bid.utility(slots), -more) for more in range(1, most + 1)]
    gain, more = max(gains, default=(0.0, 0))
    return -more if gain > 0 else 0
