"""Division of GPUs by goodput: the most of what they are worth to all jobs of a group together.

Maximised is the sum over jobs of weight * u(speed-up * k) with u(x) = x^p / p, where k is 1 for the size that a job has
and less for any other one, by what the change costs. A job's sizes have a concave hull: what each further GPU is worth
at the best. Segments of all hulls are given in the order of their worth per GPU, as long as there are slots. That is
the best division, unless the last segment does not fit: then what may be missing to the best is known, the gap.

A group has one of three aims. `soon`: trainings end early on average; who has little left weighs more. `even`: all are
sped up alike (Pollux's fairness). `used`: who has used little GPU time weighs more, and nobody gains by saying so.

A division that is no better than the present one is discarded, so an unchanged snapshot yields a stable result.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush, nsmallest
from itertools import pairwise
from typing import NamedTuple

from scheduling.policies.speedups import JobScaling
from scheduling.snapshot import Aim

__all__ = [
    "BEHIND",
    "BETTER",
    "BONUS",
    "BONUS_OF_KINDS",
    "LONGEST",
    "SHORTEST",
    "Bid",
    "Division",
    "GoodputDivision",
    "Segment",
    "Step",
    "bid_weight",
    "finish_time_ratio",
    "goodput_division",
    "greedy",
    "kept_by_move",
    "last_steps",
    "lasts_for",
    "seconds_left",
    "total_value",
]

#: Bonus for keeping the present size, in addition to the cost of a change: as a fraction of a job's utility, and of its
#: speed where there are several kinds of GPU.
BONUS, BONUS_OF_KINDS = 0.05, 0.01
#: Seconds over which a change has to pay: what is left of the job at its present speed (see `lasts_for` for several
#: kinds of GPU), within these limits.
SHORTEST, LONGEST = 60.0, 1800.0
#: Part of the speed that a change leaves at the least.
_LEAST_WORTH = 0.05
#: Finish-time ratio above which a job weighs more, where there are several kinds of GPU.
BEHIND = 1.5
#: Relative gain from which a division counts as better.
BETTER = 1e-9
_YOUNG_SECONDS = 300.0
_NORMAL_PRIORITY = 5000
_POWER: Mapping[Aim, float] = {"soon": 0.5, "even": -1.0, "used": -0.5}
#: Exponent of the seconds by which a job weighs less.
_URGENCY_POWER: Mapping[Aim, float] = {"soon": -0.7, "even": 0.0, "used": -0.5}
#: The same where there are several kinds of GPU, whose speeds differ more than those of sizes.
_POWER_OF_KINDS: Mapping[Aim, float] = {"soon": 0.25, "even": -1.0, "used": 0.25}
_URGENCY_POWER_OF_KINDS: Mapping[Aim, float] = {"soon": -0.4, "even": 0.0, "used": -0.4}


class Segment(NamedTuple):
    """Segment from one corner of a job's hull to the next. Compared by worth, then by how early it comes."""

    #: Worth per slot, negated.
    cost: float
    #: Place on its job's hull, then place of the job in line.
    place: int
    order: int


class Step(NamedTuple):
    """Step from one of its sizes to the next."""

    job: int
    before: int
    after: int
    #: Kind of GPU; "" where there is one alone.
    kind: str = ""


@dataclass(frozen=True)
class Bid:
    """Bid of one job for slots."""

    id: int
    weight: float
    #: Power p of the utility.
    power: float
    #: Smallest and largest number of slots that it may get.
    floor: int
    most: int
    #: Number of slots that the job has; None: it starts.
    has: int | None
    #: Utility by slots; None: the job gets its floor and no more.
    scaling: JobScaling | None
    #: Kind of GPU that it bids for; "" where there is one alone.
    kind: str = ""
    #: Seconds over which a change has to pay, before the limits `SHORTEST` and `LONGEST`.
    left: float = LONGEST
    #: Whether its ranks are in a long start, which any change would waste.
    restarting: bool = False
    #: Whether there are several kinds of GPU.
    several_kinds: bool = False

    def utility(self, slots: int) -> float:
        if self.scaling is None or not slots:
            return 0.0
        speed = self.scaling.speedup(slots) * self._kept(self.scaling, slots)
        return round(self.weight * float(speed**self.power) / self.power, 12)

    def _kept(self, scaling: JobScaling, slots: int) -> float:
        """Return k: the fraction of the speed-up that remains after the cost of the change."""
        if self.has is None or slots == self.has:
            return 1.0
        if self.restarting:
            return _LEAST_WORTH
        cost = scaling.pause_seconds + max(0, slots - self.has) * scaling.start_seconds / slots
        if self.several_kinds:
            return kept_by_move(cost, self.left)
        moved: float = (1.0 - BONUS) ** (1.0 / abs(self.power))
        return max(_LEAST_WORTH, moved - _part_of_rest(cost, self.left))

    @cached_property
    def corners(self) -> list[tuple[int, float]]:
        """Sizes and their utilities on its upper concave hull, from its floor on, as far as it rises."""
        points: list[tuple[int, float]] = []
        for size in self.sizes:
            point = (size, self.utility(size))
            while len(points) > 1 and _slope(points[-2], points[-1]) < _slope(points[-1], point):
                points.pop()
            points.append(point)
        rising = next((end for end in range(1, len(points)) if _rounded_slope(*points[end - 1 : end + 1]) <= 0), None)
        return points[:rising]

    @cached_property
    def slopes(self) -> list[float]:
        """Worth per slot between its corners, negated."""
        return [-_rounded_slope(before, after) for before, after in pairwise(self.corners)]

    @property
    def sizes(self) -> list[int]:
        """Sizes that it may get, from its floor on."""
        offered = self.scaling.sizes if self.scaling is not None else ()
        has = (self.has,) if self.has is not None else ()
        return sorted({self.floor, *(size for size in (*offered, *has) if self.floor < size <= self.most)})


@dataclass(frozen=True)
class GoodputDivision:
    shares: dict[int, int]
    #: Upper bound on the optimality gap, as a fraction of the best utility above the floors.
    gap: float
    #: Weighted utility of one further slot; 0 where every job has all that it is offered.
    price: float
    #: Weighted utility of all jobs together.
    value: float
    #: Of two jobs on each kind that have more than their floors: what the last step up of each is worth least for.
    last: tuple[Step, ...] = ()
    #: Where there are several kinds of GPU: the one that each job shall train on, but for those that have to train on
    #: several at once; and what a further slot of each would be worth.
    kinds: Mapping[int, str] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    #: Job that weighs more because it is late -> its finish-time ratio; see `finish_time_ratio`.
    late: Mapping[int, float] = field(default_factory=dict)


class Division(NamedTuple):
    """Slots of each job, the gap, and the price of a slot of each kind."""

    shares: dict[int, int]
    gap: float
    prices: dict[str, float]


def bid_weight(
    aim: Aim, priority: int, gpu_seconds: float, remaining_seconds: float | None, *, several_kinds: bool = False
) -> tuple[float, float]:
    """Return a job's weight and the power p of its utility."""
    seconds = remaining_seconds if aim == "soon" and remaining_seconds is not None else gpu_seconds
    powers = _URGENCY_POWER_OF_KINDS if several_kinds else _URGENCY_POWER
    urgency = (_YOUNG_SECONDS + max(0.0, seconds)) ** powers[aim]
    return priority / _NORMAL_PRIORITY * urgency, (_POWER_OF_KINDS if several_kinds else _POWER)[aim]


def kept_by_move(cost: float, left: float) -> float:
    """Return k: the fraction of a speed that is left of it after a change, where there are several kinds of GPU.
    `cost`: seconds of the change; `left`: seconds that are left of the job."""
    return max(_LEAST_WORTH, 1.0 - BONUS_OF_KINDS - _part_of_rest(cost, left))


def _part_of_rest(cost: float, left: float) -> float:
    return cost / min(max(left, SHORTEST), LONGEST)


def seconds_left(remaining_seconds: float | None, gpu_seconds: float, speed: float, slots: int) -> float:
    """Return the seconds that are left of a job at its present speed. If nobody knows, it is taken to be halfway
    through."""
    if not slots:
        return LONGEST
    return gpu_seconds / slots if remaining_seconds is None else remaining_seconds / max(speed, 1e-9)


def lasts_for(left: float, age: float, changes: int) -> float:
    """Return the seconds for which a change of a job will last, where there are several kinds of GPU: what is left of
    the job, but no more than the mean time between its changes so far, as Pollux's scheduler expects (OSDI'21). `age`:
    seconds since its submission."""
    return min(left, age / (changes + 1))


def finish_time_ratio(age: float, remaining_seconds: float, total_seconds: float, speed: float, start: float) -> float:
    """Return rho: the completion time of a job that gets its equal part from now on, over that of one that always had
    it. `speed`: on that part, in GPUs of the first kind. The present speed does not count: weights that follow it would
    never come to rest."""
    return (age + remaining_seconds / speed) / (total_seconds / speed + start)


def goodput_division(bids: Sequence[Bid], capacity: int) -> GoodputDivision:
    """Divide the slots. Jobs get their floors even where these do not fit: none is stopped. bids: in this order."""
    shares, gap, prices = greedy(bids, capacity - sum(bid.floor for bid in bids))
    price, value = prices.get("", 0.0), total_value(bids, shares)
    has = _what_they_have(bids, capacity)
    if has is not None and (kept := total_value(bids, has)) >= value - BETTER * abs(value):
        return GoodputDivision(has, gap, price, kept, last=last_steps(bids, has))
    return GoodputDivision(shares, gap, price, value, last=last_steps(bids, shares))


def last_steps(bids: Iterable[Bid], shares: Mapping[int, int]) -> tuple[Step, ...]:
    """See `GoodputDivision.last`."""
    found: dict[str, list[tuple[float, int, Step]]] = {}
    for order, bid in enumerate(bids):
        after = shares[bid.id]
        if bid.scaling is not None and after > bid.floor:
            before = max(size for size in bid.sizes if size < after)
            worth = (bid.utility(after) - bid.utility(before)) / (after - before)
            found.setdefault(bid.kind, []).append((round(worth, 12), order, Step(bid.id, before, after, bid.kind)))
    return tuple(step for steps in found.values() for _, _, step in nsmallest(2, steps))


def total_value(bids: Iterable[Bid], shares: Mapping[int, int]) -> float:
    return sum(bid.utility(shares[bid.id]) for bid in bids)


def _what_they_have(bids: Iterable[Bid], capacity: int) -> dict[int, int] | None:
    """Return the present slots of all jobs; None if a job starts or cannot keep its slots."""
    has = {}
    for bid in bids:
        if bid.has is None or not bid.floor <= bid.has <= bid.most:
            return None
        has[bid.id] = bid.has
    return has if sum(has.values()) <= capacity else None


def greedy(bids: Sequence[Bid], spare: int, rooms: Mapping[str, int] | None = None) -> Division:
    """Give `spare` slots beyond the floors, of each kind no more than `rooms` says. With several kinds the gap is that
    of the division with these kinds chosen, if it can be told."""
    shares = {bid.id: bid.floor for bid in bids}
    left = dict(rooms) if rooms is not None else {"": spare}
    heap = [Segment(bid.slopes[0], 0, order) for order, bid in enumerate(bids) if bid.slopes]
    heapify(heap)
    gained, bound, prices = 0.0, None, dict[str, float]()
    cut: list[Bid] = []
    while heap:
        segment = heappop(heap)
        bid, place = bids[segment.order], segment.place
        (slots, _), (after, _) = bid.corners[place : place + 2]
        more = after - slots
        if more > min(spare, left[bid.kind]):
            prices.setdefault(bid.kind, -segment.cost)
            if bound is None:
                bound = gained - segment.cost * max(0, spare)
            cut.append(bid)
            continue
        shares[bid.id] = after
        spare -= more
        left[bid.kind] -= more
        gained -= segment.cost * more
        if place + 1 < len(bid.slopes):
            heappush(heap, Segment(bid.slopes[place + 1], place + 1, segment.order))
    has_parts = False
    for bid in cut:
        # Only one job may have parts of several hosts: two would compete for the network of a shared host.
        more = _odd_size(bid, shares[bid.id], min(spare, left[bid.kind]), within_host=has_parts)
        has_parts = has_parts or (more > 0 and shares[bid.id] + more > _host(bid))
        gained += bid.utility(shares[bid.id] + more) - bid.utility(shares[bid.id])
        shares[bid.id] += more
        spare -= more
        left[bid.kind] -= more
    gap = max(0.0, (bound - gained) / bound) if bound is not None and bound > 0 else 0.0
    return Division(shares, gap, prices)


def _odd_size(bid: Bid, slots: int, spare: int, *, within_host: bool) -> int:
    """Return how many of the slots that nobody can use in whole segments serve this job best."""
    most = min(spare, bid.most - slots, _host(bid) - slots if within_host else spare)
    gains = [(bid.utility(slots + more) - bid.utility(slots), -more) for more in range(1, most + 1)]
    gain, more = max(gains, default=(0.0, 0))
    return -more if gain > 0 else 0


def _host(bid: Bid) -> int:
    return bid.scaling.host if bid.scaling is not None else 0


def _rounded_slope(before: tuple[int, float], after: tuple[int, float]) -> float:
    return round(_slope(before, after), 12)


def _slope(before: tuple[int, float], after: tuple[int, float]) -> float:
    return (after[1] - before[1]) / (after[0] - before[0])
