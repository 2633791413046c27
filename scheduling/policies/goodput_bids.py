"""Bids of jobs for GPUs: what each number of them is worth to a job.

A job's utility is weight * u(speed-up * k) with u(x) = x^p / p, where k is 1 for the size that it has and less for any
other one, by what the change costs. Its sizes have a concave hull: what each further GPU is worth at the best.

A group has one of three aims. `soon`: trainings end early on average; a job weighs more, the less work it has left.
`even`: all are sped up alike (Pollux's fairness). `used`: a job weighs more, the less GPU time it has used; a false
declaration of its work gains nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from scheduling.policies.speedups import JobScaling
from scheduling.snapshot import Aim

__all__ = [
    "BEHIND",
    "BONUS",
    "BONUS_OF_KINDS",
    "LONGEST",
    "SHORTEST",
    "Bid",
    "bid_weight",
    "finish_time_ratio",
    "kept_by_move",
    "lasts_for",
    "seconds_left",
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
_YOUNG_SECONDS = 300.0
_NORMAL_PRIORITY = 5000
_POWER: Mapping[Aim, float] = {"soon": 0.5, "even": -1.0, "used": -0.5}
#: Exponent of the seconds by which a job weighs less.
_URGENCY_POWER: Mapping[Aim, float] = {"soon": -0.7, "even": 0.0, "used": -0.5}
#: The same where there are several kinds of GPU, whose speeds differ more than those of sizes.
_POWER_OF_KINDS: Mapping[Aim, float] = {"soon": 0.25, "even": -1.0, "used": 0.25}
_URGENCY_POWER_OF_KINDS: Mapping[Aim, float] = {"soon": -0.4, "even": 0.0, "used": -0.4}


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
        """Return size and utility at each corner of its upper concave hull, from its floor on, as far as it rises."""
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
        """Return the utility per slot between its corners, negated, so that the best comes first in rising order."""
        return [-_rounded_slope(before, after) for before, after in pairwise(self.corners)]

    @property
    def host(self) -> int:
        """Return the number of slots of the largest host."""
        return self.scaling.host if self.scaling is not None else 0

    @property
    def sizes(self) -> list[int]:
        """Return the sizes that it may get, from its floor on."""
        offered = self.scaling.sizes if self.scaling is not None else ()
        has = (self.has,) if self.has is not None else ()
        return sorted({self.floor, *(size for size in (*offered, *has) if self.floor < size <= self.most)})


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
    """Return the seconds that are left of a job at its present speed. A job whose remaining work is
    unknown counts as halfway through."""
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


def _rounded_slope(before: tuple[int, float], after: tuple[int, float]) -> float:
    return round(_slope(before, after), 12)


def _slope(before: tuple[int, float], after: tuple[int, float]) -> float:
    return (after[1] - before[1]) / (after[0] - before[0])
