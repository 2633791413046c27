"""Value of GPUs to a job, from the profile that its ranks measured: the speed-ups that policy goodput divides by.

Where there are several kinds of GPU, speed-ups are against one GPU of the first kind. On a kind on which a job was not
measured it is taken to be as much faster or slower as those that were measured on both, and else as fast.

A job is offered 1, 2, 4 ... GPUs within a host, then whole hosts: so few jobs share a host, and hardly one shares it
with a job on several (`placement.spread` keeps those apart). Only the least that a job asks for, what it has already,
and for one job what is left over may be parts of several hosts. It is offered nothing beyond its knee, the least size
with 99 % of the best speed-up, and at most four times as many GPUs as it has been measured on. Without a profile it is
taken to be twice as fast on two GPUs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate
from statistics import median
from typing import Literal

from tidepool.goodput.curve import Best, best, curve
from tidepool.goodput.model import Bounds, NoiseScale, Size, ThroughputParameters

from scheduling.plan import BatchPlan
from scheduling.snapshot import JobView, ProfileView

__all__ = [
    "BEYOND_MEASURED",
    "KNEE",
    "JobScaling",
    "Limit",
    "Shape",
    "batch_of",
    "kind_of",
    "kind_of_most",
    "scaling_of",
    "scalings_of",
    "size_on",
    "sizes_within",
    "worths_of",
]

#: Part of the best speed-up from which more GPUs are not worth while; who has more keeps them up to the second one.
KNEE, KNEE_KEPT = 0.99, 0.995
#: Largest offered size, as a multiple of the largest measured one.
BEYOND_MEASURED = 4
#: A GPU of several never does more than this, in GPUs that work alone: a profile that says so is wrong.
_MOST_PER_GPU = 1.1
#: A kind of GPU is never worth more or less to a job, by its own profile, than so many times what it is to others.
_MOST_APART = 4.0
#: Largest number of GPUs from which the speed of one GPU is derived, where the batch bounds do not allow a single GPU.
_FEW = 8
_REMEMBERED = 8192

#: Reasons why a job gets no more than `JobScaling.most`.
Limit = Literal["maximum", "knee", "profile", "hosts"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The hosts of a resource group that have one kind of GPU."""

    #: Number of slots of each host, the largest first.
    hosts: tuple[int, ...]
    kind: str = ""
    #: The same as `hosts`, by name.
    slots_of: Mapping[str, int] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class JobScaling:
    """Value of GPUs to one job."""

    #: On 1, 2, 3 ... GPUs, against one; as many entries as it can be given at most, or more.
    speedups: tuple[float, ...]
    #: Sizes that it is offered, rising, from its minimum up to `most`.
    sizes: tuple[int, ...]
    #: The most that it is given, and why no more.
    most: int
    limit: Limit
    #: Slots of the largest host: beyond these it gets whole hosts.
    host: int
    #: The largest size that it was measured on; 0: none.
    measured: int
    #: Seconds that its remaining work takes on one GPU; None: nobody knows.
    remaining_seconds: float | None
    #: Seconds that a change of size costs, and seconds until a new rank trains.
    pause_seconds: float
    start_seconds: float

    def speedup(self, slots: int) -> float:
        return self.speedups[min(slots, len(self.speedups)) - 1]


def sizes_within(shape: Shape, least: int, most: int) -> tuple[int, ...]:
    """Sizes from `least` to `most` that these hosts serve well; `least` always, `most` unless it is parts of several
    hosts. (One that is more than there is counts for the knee: without it jobs would be held small.)"""
    largest = max(shape.hosts, default=1)
    powers = [1 << exponent for exponent in range(largest.bit_length()) if 1 << exponent < largest]
    found = {size for size in (*powers, *accumulate(shape.hosts)) if least < size <= most}
    is_part = largest < most < sum(shape.hosts)
    return tuple(sorted(found | {least} if is_part else found | {least, most}))


def scaling_of(job: JobView, shape: Shape, held: int, worth: float = 1.0) -> JobScaling:
    """`held`: slots that it holds now, of this kind. `worth`: of a GPU of this kind, in those that speed-ups are
    against."""
    profile = job.profile
    parameters = _parameters(profile, shape.kind)
    measured = profile.largest_ranks if profile is not None and parameters is not None else 0
    offered = max(job.min_slots, min(job.max_slots, max(BEYOND_MEASURED * measured, 2)))
    if profile is None or parameters is None:
        speedups, at_one = tuple(float(min(count, 2)) for count in range(1, max(offered, held) + 1)), None
    else:
        speedups, at_one = _speedups(parameters, profile.bounds, profile.noise, shape.hosts, max(offered, held))
    sizes = sizes_within(shape, job.min_slots, offered)
    most = _knee(speedups, sizes, held)
    whole: Limit = "maximum" if sizes[-1] == offered else "hosts"
    limit: Limit = "knee" if most < sizes[-1] else "profile" if offered < job.max_slots else whole
    remaining = None
    if profile is not None and profile.remaining_steps is not None and at_one:
        remaining = profile.remaining_steps / at_one
    return JobScaling(
        speedups=speedups if worth == 1.0 else tuple(round(speed * worth, 9) for speed in speedups),
        sizes=tuple(size for size in sizes if size <= most),
        most=most,
        limit=limit,
        host=max(shape.hosts, default=1),
        measured=measured,
        remaining_seconds=remaining,
        pause_seconds=1.0 if profile is None else profile.pause_seconds,
        start_seconds=0.0 if profile is None else profile.start_seconds,
    )


def scalings_of(
    job: JobView, shapes: Sequence[Shape], held: Mapping[str, int], worths: Mapping[str, float]
) -> dict[str, JobScaling]:
    """Kind of GPU -> its value to the job. `held`: slots that it holds now of each kind. `worths`: see `worths_of`."""
    first, known = shapes[0].kind, _at_one(job.profile)
    own = {
        kind: min(max(known[kind] / known[first], worth / _MOST_APART), worth * _MOST_APART)
        for kind, worth in worths.items()
        if kind != first and kind in known and first in known
    }
    worths = {**worths, **own}
    remaining = None
    if known and job.profile is not None and job.profile.remaining_steps is not None:
        kind = first if first in known else min(known)
        remaining = job.profile.remaining_steps / known[kind] * worths.get(kind, 1.0)
    return {
        shape.kind: replace(
            scaling_of(job, shape, held.get(shape.kind, 0), worths[shape.kind]), remaining_seconds=remaining
        )
        for shape in shapes
    }


def worths_of(jobs: Iterable[JobView], shapes: Sequence[Shape]) -> dict[str, float]:
    """Kind of GPU -> what one is worth to most jobs, in GPUs of the first kind: the median over those that were
    measured on both, 1 where none was."""
    first = shapes[0].kind
    found: dict[str, list[float]] = {shape.kind: [] for shape in shapes}
    for job in jobs:
        known = _at_one(job.profile)
        for kind in found.keys() & known.keys() if first in known else ():
            found[kind].append(known[kind] / known[first])
    return {kind: median(ratios) if ratios else 1.0 for kind, ratios in found.items()}


def _at_one(profile: ProfileView | None) -> dict[str, float]:
    """Kind of GPU that it was measured on -> goodput on one of them."""
    if profile is None:
        return {}
    goodputs = {
        kind: _speedups(parameters, profile.bounds, profile.noise, (_FEW,), _FEW)[1]
        for kind, parameters in profile.parameters.items()
    }
    return {kind: goodput for kind, goodput in goodputs.items() if goodput > 0}


def batch_of(job: JobView, shape: Shape, slots: int) -> BatchPlan | None:
    """The batch that its rank 0 will choose on so many slots, by this profile; None without one."""
    profile = job.profile
    parameters = _parameters(profile, shape.kind)
    if profile is None or parameters is None or not slots:
        return None
    found = _best(parameters, profile.bounds, profile.noise, size_on(shape.hosts, slots))
    return BatchPlan(found.batch, found.micro_batch, found.accumulation, found.goodput, found.goodput / slots)


@lru_cache(maxsize=_REMEMBERED)
def _best(parameters: ThroughputParameters, bounds: Bounds, noise: NoiseScale | None, size: Size) -> Best:
    return best(parameters, bounds, noise, size)


def _parameters(profile: ProfileView | None, kind: str) -> ThroughputParameters | None:
    """Return the parameters for this kind of GPU, else for the first measured: the shapes are much the same."""
    found = None if profile is None else kind_of(profile, kind)
    return None if profile is None or found is None else profile.parameters[found]


def kind_of_most(devices: Iterable[str]) -> str:
    """The kind of GPU that most of these are."""
    kinds = Counter(devices)
    return min(kinds, key=lambda kind: (-kinds[kind], kind), default="")


def kind_of(profile: ProfileView, kind: str) -> str | None:
    """The kind of GPU whose parameters count on one of this kind; None: nothing is known of any."""
    return kind if kind in profile.parameters else min(profile.parameters, default=None)


def _knee(speedups: Sequence[float], sizes: Sequence[int], held: int) -> int:
    best_speedup = max(speedups[size - 1] for size in sizes)
    knee = next(size for size in sizes if speedups[size - 1] >= KNEE * best_speedup)
    kept = next(size for size in sizes if speedups[size - 1] >= KNEE_KEPT * best_speedup)
    return held if knee < held <= kept else knee


@lru_cache(maxsize=_REMEMBERED)
def _speedups(
    parameters: ThroughputParameters,
    bounds: Bounds,
    noise: NoiseScale | None,
    hosts: tuple[int, ...],
    most: int,
) -> tuple[tuple[float, ...], float]:
    """Speed-ups on 1, 2 ... `most` GPUs, and the goodput on one."""
    found = curve(parameters, bounds, noise, [size_on(hosts, count) for count in range(1, most + 1)])
    goodput = found.goodput.tolist()
    # If the bounds forbid one GPU, the smallest allowed number is taken to share its work perfectly.
    at_one = next((speed / count for count, speed in enumerate(goodput, start=1) if speed > 0), 0.0)
    if not at_one:
        return (1.0,) * most, 0.0
    capped = (min(speed / at_one, _MOST_PER_GPU * count) for count, speed in enumerate(goodput, start=1))
    return tuple(round(max(speed, 1e-6), 9) for speed in capped), at_one


def size_on(hosts: tuple[int, ...], ranks: int) -> Size:
    """Return the size on as few hosts as possible. Ranks beyond all slots fill hosts like the smallest one."""
    left, count = ranks, 0
    for slots in hosts:
        left, count = left - slots, count + 1
        if left <= 0:
            break
    smallest = hosts[-1] if hosts else 1
    return Size(max(1, count + max(0, -(-left // smallest))), ranks)
