"""Value of GPUs to a job, from the profile that its ranks measured: the speed-ups that policy goodput divides by.

Where there are several kinds of GPU, speed-ups are against one GPU of the first kind. On a kind on which a job was not
measured its speed follows from one on which it was, by remembered ratios (`kind_ratios`).

A job is offered 1, 2, 4 ... GPUs within a host, then whole hosts: so few jobs share a host, and hardly one shares it
with a job on several (`placement.spread` keeps those apart). Only the least that a job asks for, what it has already,
and for one job what is left over may be parts of several hosts. It is offered nothing beyond its knee, the least size
with 99 % of the best speed-up, and at most four times as many GPUs as it has been measured on. Without a profile it is
taken to be twice as fast on two GPUs.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Literal

import numpy as np
from tidepool.goodput.curve import Best, best, curve
from tidepool.goodput.model import Bounds, NoiseScale, Size, ThroughputParameters

from scheduling.plan import BatchPlan
from scheduling.policies.kind_ratios import MEASURED, Estimate, Ratios
from scheduling.snapshot import JobView, ProfileView

__all__ = [
    "BEYOND_MEASURED",
    "KNEE",
    "NO_RATIOS",
    "JobScaling",
    "Limit",
    "Shape",
    "batch_of",
    "bounds_on",
    "goodput_at_one",
    "kind_of_most",
    "kind_speed",
    "scaling_of",
    "scalings_of",
    "sizes_within",
    "speed_on_hosts",
]

#: Fraction of the best speed-up from which on a job gets no more GPUs. A job that has more keeps them up to the second.
KNEE, KNEE_KEPT = 0.99, 0.995
#: Largest offered size, as a multiple of the largest measured one.
BEYOND_MEASURED = 4
#: A GPU of several never does more than this, in GPUs that work alone: a profile that says so is wrong.
_MOST_PER_GPU = 1.1
#: Largest factor by which a job's own measurements of a kind of GPU may differ from the median over all trainings.
_MOST_APART = 4.0
#: Largest number of GPUs from which the speed of one GPU is derived, where the batch bounds do not allow a single GPU.
_FEW = 8
#: Number of cached curves, and of other cached results. A cycle asks for all of them in the same order, so a cache that
#: is too small for one cycle finds nothing.
_REMEMBERED = 65536
#: No ratios: kinds on which a job was not measured count as equally fast as those on which it was.
NO_RATIOS = Ratios()

#: Reasons why a job gets no more than `JobScaling.most`.
Limit = Literal["maximum", "knee", "profile", "hosts"]


@dataclass(frozen=True)
class Shape:
    """The hosts of a resource group that have one kind of GPU."""

    #: Number of slots of each host, the largest first.
    hosts: tuple[int, ...]
    kind: str = ""
    #: The same as `hosts`, by name.
    slots_of: Mapping[str, int] = field(default_factory=dict, compare=False)

    @cached_property
    def whole_hosts(self) -> tuple[int, ...]:
        """Return the number of slots of the first host, of the first two, and so on up to all."""
        return tuple(accumulate(self.hosts))

    @property
    def slots(self) -> int:
        return self.whole_hosts[-1] if self.hosts else 0

    @property
    def largest_host(self) -> int:
        return self.hosts[0] if self.hosts else 1

    def hosts_for(self, ranks: int) -> tuple[int, ...]:
        """Return the fewest hosts that have so many slots; all, if they have fewer."""
        return self.hosts[: bisect_left(self.whole_hosts, ranks) + 1]

    def size_of(self, ranks: int) -> Size:
        """Return the size on as few hosts as possible. Ranks beyond all slots fill hosts like the smallest one."""
        beyond = ranks - self.slots
        if beyond <= 0:
            return Size(bisect_left(self.whole_hosts, ranks) + 1, ranks)
        smallest = self.hosts[-1] if self.hosts else 1
        return Size(len(self.hosts) - (-beyond // smallest), ranks)


@dataclass(frozen=True, slots=True)
class JobScaling:
    """Value of GPUs to one job."""

    #: On 1, 2, 3 ... GPUs of this kind, against one of them; as many entries as it can be given at most, or more.
    speedups: Sequence[float]
    #: Sizes that it is offered, rising, from its minimum up to `most`.
    sizes: tuple[int, ...]
    #: The most that it is given, and why no more.
    most: int
    limit: Limit
    #: Slots of the largest host: beyond these it gets whole hosts.
    host: int
    #: The largest size that it was measured on; 0: none.
    measured: int
    #: Seconds that its remaining work takes on one GPU of the first kind; None: unknown.
    remaining_seconds: float | None
    #: Seconds that a change of size costs, and seconds until a new rank trains.
    pause_seconds: float
    start_seconds: float
    #: Value of one GPU of this kind, in GPUs of the first kind.
    worth: float = 1.0
    #: Origin of its speed on this kind of GPU.
    speed: Estimate = MEASURED
    #: Seconds that all its work takes on one GPU of the first kind; None: unknown.
    total_seconds: float | None = None

    def speedup(self, slots: int) -> float:
        """Return the speed on so many GPUs of this kind, against one of the first kind."""
        found = self.speedups[min(slots, len(self.speedups)) - 1]
        return found if self.worth == 1.0 else round(found * self.worth, 9)


def sizes_within(shape: Shape, least: int, most: int) -> tuple[int, ...]:
    """Return the sizes from `least` to `most` that these hosts serve well; `least` always, `most` unless it is parts of
    several hosts. (A size beyond all slots counts for the knee: without it jobs would be held small.)"""
    largest, whole = shape.largest_host, shape.whole_hosts
    powers = [size for exponent in range(largest.bit_length()) if least < (size := 1 << exponent) <= min(most, largest)]
    found = {*powers, *whole[bisect_right(whole, least) : bisect_right(whole, most)]}
    is_part = largest < most < shape.slots
    return tuple(sorted(found | {least} if is_part else found | {least, most}))


def scaling_of(job: JobView, shape: Shape, held: int, ratios: Ratios = NO_RATIOS) -> JobScaling:
    """Return the value of this kind of GPU alone. `held`: slots that it holds now."""
    return scalings_of(job, (shape,), {shape.kind: held}, ratios)[shape.kind]


def scalings_of(
    job: JobView, shapes: Sequence[Shape], held: Mapping[str, int], ratios: Ratios = NO_RATIOS
) -> dict[str, JobScaling]:
    """Return the value of each kind of GPU to the job. `held`: slots that it holds now of each kind. Speed-ups on all
    kinds are against one GPU of the first."""
    first, known = shapes[0].kind, goodput_at_one(job.profile)
    on_first = kind_speed(job, first, known, ratios)
    seconds = _seconds_on_one(job.profile, known[on_first.base] * on_first.ratio) if known else (None, None)
    found = {}
    for shape in shapes:
        speed = on_first if shape.kind == first else kind_speed(job, shape.kind, known, ratios)
        if not known:
            speed = ratios.estimate(job.code, shape.kind, first)
        worth = _worth(known, speed, on_first, shape.kind, first, ratios)
        found[shape.kind] = _scaling_on(job, shape, held.get(shape.kind, 0), speed, worth, seconds)
    return found


def _seconds_on_one(profile: ProfileView | None, goodput: float) -> tuple[float | None, float | None]:
    """Return the seconds that the remaining work takes at this goodput, and all the work; None: unknown."""
    if profile is None or profile.remaining_steps is None:
        return None, None
    remaining = profile.remaining_steps / goodput
    return remaining, remaining + profile.done_steps / goodput


def kind_speed(job: JobView, kind: str, known: Collection[str], ratios: Ratios) -> Estimate:
    """Return the speed of a GPU of this kind relative to one of the kinds that the job was measured on, `known`."""
    if kind in known or not known:
        return Estimate(1.0, "measured" if known else "unknown", base=kind)
    return ratios.best_estimate(job.code, kind, known)


def _worth(
    known: Mapping[str, float], speed: Estimate, on_first: Estimate, kind: str, first: str, ratios: Ratios
) -> float:
    """Return the value of one GPU of this kind to the job, in GPUs of the first. The job's own measurements count
    within a factor of `_MOST_APART` of the median over all trainings."""
    if not known:
        return speed.ratio
    if speed.base == on_first.base:
        return speed.ratio / on_first.ratio
    worth = known[speed.base] * speed.ratio / (known[on_first.base] * on_first.ratio)
    others = ratios.among_all(kind, first)
    if others is None or speed.source != "measured" or on_first.source != "measured":
        return worth
    return min(max(worth, others / _MOST_APART), others * _MOST_APART)


def _scaling_on(
    job: JobView,
    shape: Shape,
    held: int,
    speed: Estimate,
    worth: float,
    seconds: tuple[float | None, float | None],
) -> JobScaling:
    profile = job.profile
    parameters = profile.parameters.get(speed.base) if profile is not None else None
    measured = profile.largest_ranks if profile is not None and parameters is not None else 0
    offered = max(job.min_slots, min(job.max_slots, max(BEYOND_MEASURED * measured, 2)))
    largest = max(offered, held)
    speedups: Sequence[float]
    if profile is None or parameters is None:
        speedups = _unmeasured(largest)
    else:
        bounds = bounds_on(profile, shape.kind)
        speedups, _ = _speedups(parameters, bounds, profile.noise, shape.hosts_for(largest), largest)
    sizes = sizes_within(shape, job.min_slots, offered)
    most = _knee(speedups, sizes, held)
    whole: Limit = "maximum" if sizes[-1] == offered else "hosts"
    limit: Limit = "knee" if most < sizes[-1] else "profile" if offered < job.max_slots else whole
    return JobScaling(
        speedups=speedups,
        sizes=tuple(size for size in sizes if size <= most),
        most=most,
        limit=limit,
        host=shape.largest_host,
        measured=measured,
        remaining_seconds=seconds[0],
        pause_seconds=1.0 if profile is None else profile.pause_seconds,
        start_seconds=0.0 if profile is None else profile.start_seconds,
        worth=worth,
        speed=speed,
        total_seconds=seconds[1],
    )


def goodput_at_one(profile: ProfileView | None) -> dict[str, float]:
    """Return the goodput on one GPU of each kind that the job was measured on."""
    if profile is None:
        return {}
    goodputs = {
        kind: _at_one(parameters, bounds_on(profile, kind), profile.noise)
        for kind, parameters in profile.parameters.items()
    }
    return {kind: goodput for kind, goodput in goodputs.items() if goodput > 0}


@lru_cache(maxsize=_REMEMBERED)
def _at_one(parameters: ThroughputParameters, bounds: Bounds, noise: NoiseScale | None) -> float:
    return _speedups.__wrapped__(parameters, bounds, noise, (_FEW,), _FEW)[1]


def bounds_on(profile: ProfileView, kind: str) -> Bounds:
    """Return the bounds of the job's batch on a kind of GPU: memory limits the micro-batch on each."""
    largest = profile.micro_batches
    if not largest:
        return profile.bounds
    most = max(largest.get(kind, max(largest.values())), profile.bounds.min_micro_batch)
    return replace(profile.bounds, max_micro_batch=most)


def batch_of(job: JobView, shape: Shape, slots: int, ratios: Ratios = NO_RATIOS) -> BatchPlan | None:
    """Return the batch that the job's rank 0 will choose on so many slots, by its profile; None without a profile. On a
    kind of GPU on which the job was not measured, the goodput is an estimate."""
    profile = job.profile
    if profile is None or not profile.parameters or not slots:
        return None
    speed = kind_speed(job, shape.kind, profile.parameters.keys(), ratios)
    bounds = bounds_on(profile, shape.kind)
    found = _best(profile.parameters[speed.base], bounds, profile.noise, shape.size_of(slots))
    goodput = found.goodput * speed.ratio
    return BatchPlan(found.batch, found.micro_batch, found.accumulation, goodput)


def speed_on_hosts(job: JobView, kind: str, slots: int, hosts: int, ratios: Ratios = NO_RATIOS) -> float:
    """Return its goodput on so many slots of a kind on so many hosts; 0.0 where nothing was measured. On a kind where
    the job was not measured, the figure is that of the kind from which its speed is estimated."""
    profile = job.profile
    if profile is None or not profile.parameters:
        return 0.0
    speed = kind_speed(job, kind, profile.parameters.keys(), ratios)
    bounds = bounds_on(profile, kind)
    return _best(profile.parameters[speed.base], bounds, profile.noise, Size(hosts, slots)).goodput


@lru_cache(maxsize=_REMEMBERED)
def _best(parameters: ThroughputParameters, bounds: Bounds, noise: NoiseScale | None, size: Size) -> Best:
    return best(parameters, bounds, noise, size)


def kind_of_most(devices: Iterable[str]) -> str:
    """Return the kind of GPU that most of these are."""
    kinds = Counter(devices)
    return min(kinds, key=lambda kind: (-kinds[kind], kind), default="")


def _knee(speedups: Sequence[float], sizes: Sequence[int], held: int) -> int:
    best_speedup = max(speedups[size - 1] for size in sizes)
    knee = next(size for size in sizes if speedups[size - 1] >= KNEE * best_speedup)
    kept = next(size for size in sizes if speedups[size - 1] >= KNEE_KEPT * best_speedup)
    return held if knee < held <= kept else knee


@lru_cache(maxsize=_REMEMBERED)
def _unmeasured(most: int) -> tuple[float, ...]:
    return tuple(float(min(count, 2)) for count in range(1, most + 1))


@lru_cache(maxsize=_REMEMBERED)
def _speedups(
    parameters: ThroughputParameters,
    bounds: Bounds,
    noise: NoiseScale | None,
    hosts: tuple[int, ...],
    most: int,
) -> tuple[Sequence[float], float]:
    """Return the speed-ups on 1, 2 ... `most` GPUs of these hosts, and the goodput on one."""
    shape = Shape(hosts)
    goodput = curve(parameters, bounds, noise, [shape.size_of(count) for count in range(1, most + 1)]).goodput
    counts = np.arange(1.0, most + 1)
    # If the bounds forbid one GPU, the smallest allowed number is taken to share its work perfectly.
    at_one = next(
        (speed / count for speed, count in zip(goodput.tolist(), counts.tolist(), strict=True) if speed > 0), 0.0
    )
    if not at_one:
        return (1.0,) * most, 0.0
    capped = np.minimum(goodput / at_one, _MOST_PER_GPU * counts)
    return array("d", np.round(np.maximum(capped, 1e-6), 9).tobytes()), at_one
