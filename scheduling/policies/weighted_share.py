"""Fair share in which GPUs count by their kind: eight slow ones are not the share of eight fast ones.

A group gives each kind of GPU a weight. Its elastic jobs train on one kind each, and what a job has counts as its slots
times the weight of their kind. Shares follow priorities: the sum over jobs of -priority^2 / (slots x weight) is made as
large as it can be, by the prices of `gpu_kinds`. Where GPUs could be cut at will, and no job had a minimum or maximum,
that gives each job a part in proportion to its priority, and nothing else does.

Measured speeds do not count. Jobs of fixed size get what they ask for, on any kind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from scheduling.policies.demand import Demand
from scheduling.policies.goodput_bids import Bid
from scheduling.policies.kind_ratios import MEASURED
from scheduling.policies.speedups import JobScaling, Shape
from scheduling.snapshot import GroupView, JobView

__all__ = ["WeightedPart", "rounded_weight", "weighted_bid", "weighted_part", "weighted_scalings"]

#: Sizes up to this one are all offered; beyond it, steps are at most this part of a size, so that offers stay few.
_EACH_UP_TO = 64
_NORMAL_PRIORITY = 5000
#: Number of cached tables.
_REMEMBERED = 1024


@dataclass(frozen=True)
class WeightedPart:
    """What a job has by the weights of its group, beside all elastic jobs that have GPUs of one kind."""

    #: Weight of one GPU of its kind, of all its GPUs, and of all GPUs of these jobs.
    weight: float
    counts: float
    total: float
    #: Number of these jobs, and the sum of their priorities. A study counts as one job.
    jobs: int
    priorities: int


def weighted_scalings(
    job: JobView, shapes: Sequence[Shape], held: Mapping[str, int], group: GroupView
) -> dict[str, JobScaling]:
    """Return what slots of each kind of GPU count for the job. `held`: slots that it holds now of each kind."""
    return {shape.kind: _scaling(job, shape, held.get(shape.kind, 0), group.weight_of(shape.kind)) for shape in shapes}


def _scaling(job: JobView, shape: Shape, held: int, weight: float) -> JobScaling:
    most = max(job.min_slots, min(job.max_slots, shape.slots))
    return JobScaling(
        speedups=_counts(weight, max(most, held)),
        sizes=_sizes(job.min_slots, most),
        most=most,
        limit="maximum",
        host=shape.largest_host,
        measured=0,
        remaining_seconds=None,
        pause_seconds=0.0,
        start_seconds=0.0,
        speed=MEASURED,
    )


@lru_cache(maxsize=_REMEMBERED)
def _counts(weight: float, most: int) -> tuple[float, ...]:
    return tuple(round(weight * count, 9) for count in range(1, most + 1))


@lru_cache(maxsize=_REMEMBERED)
def _sizes(least: int, most: int) -> tuple[int, ...]:
    """Return the sizes that a job is offered: all up to 64, then in steps of at most a 32nd."""
    found, size = [], least
    while size < most:
        found.append(size)
        step = max(1, (1 << size.bit_length()) // _EACH_UP_TO)
        size += step - size % step
    return (*found, most)


def weighted_bid(demand: Demand, floor: int, most: int, crowd: int) -> Bid:
    """Return the bid of a job. crowd: number of jobs of its study that have GPUs, which count as one together."""
    return Bid(
        demand.id,
        weight=(demand.priority / _NORMAL_PRIORITY / crowd) ** 2,
        power=-1.0,
        floor=floor,
        most=max(floor, most),
        has=demand.held if demand.running else None,
        scaling=demand.scaling,
        several_kinds=True,
    )


def rounded_weight(weight: float) -> float:
    """Return a weight as sentences show it: a whole number where it is one."""
    found = round(weight, 2)
    return int(found) if found == int(found) else found


def weighted_part(
    group: GroupView, counted: Mapping[int, Demand], shares: Mapping[int, int], kinds: Mapping[int, str], job: int
) -> WeightedPart:
    """Return the part of a job. `shares`, `kinds`: slots, and the kind of GPU, of each job that has one kind.
    `counted`: the demand by which each of these jobs counts; that of its study, if it belongs to one."""
    counts = {one: shares[one] * group.weight_of(kind) for one, kind in kinds.items() if shares.get(one)}
    priorities = {counted[one].id: counted[one].priority for one in counts}
    return WeightedPart(
        weight=group.weight_of(kinds[job]),
        counts=counts[job],
        total=sum(counts.values()),
        jobs=len(priorities),
        priorities=sum(priorities.values()),
    )
