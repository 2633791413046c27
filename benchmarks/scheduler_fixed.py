"""Use of a cluster by fixed-size trainings, and their waiting times, with and without filling of holes.

    python -m benchmarks.scheduler_fixed [--long] [--json FILE]

Trainings of 1, 8 and 48 GPUs, 14 to 5 to 1, come at random to 48 GPUs on 6 hosts, so many that they ask for 0.9 of all
GPU time. The product's own `schedule` decides at each arrival and each end. The baseline is the
same trainings with no limits: then nobody may overtake, as before trainings had any. *exact* limits are the durations
themselves; *twice* and *a fifth* are limits of twice the duration, and a fifth of the trainings that have an exact one.

Utilisation is measured from the first arrival to the last one, the wait is that of every training, and *queue* is how
many wait at the last arrival. One value for each random seed.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from benchmarks.results import Result, arguments, result, show
from scheduling.preview import after_cycle
from scheduling.schedule import run_cycle
from scheduling.snapshot import GroupView, JobView, PolicyName, SlotRef, SlotView, Snapshot

HOSTS, SLOTS_PER_HOST = 6, 8
SLOTS = HOSTS * SLOTS_PER_HOST
SIZES, WEIGHTS = (1, 8, 48), (14, 5, 1)
LOAD = 0.9
MEAN_SECONDS = 3600.0
TRAININGS, SEEDS = 400, 5
LONG_TRAININGS, LONG_SEEDS = 1_000, 7

#: (duration, a number from 0 to 1 that is the training's own) -> its limit.
Limit = Callable[[float, float], float | None]
LIMITS: dict[str, Limit] = {
    "no limits": lambda seconds, dice: None,
    "exact limits": lambda seconds, dice: seconds,
    "limits of twice the duration": lambda seconds, dice: 2 * seconds,
    "exact limits of a fifth": lambda seconds, dice: seconds if dice < 0.2 else None,
}


@dataclass(frozen=True)
class Arrival:
    at: float
    slots: int
    seconds: float
    dice: float


@dataclass(frozen=True)
class Outcome:
    utilisation: float
    mean_wait: float
    queue: int


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    count, seeds = (LONG_TRAININGS, LONG_SEEDS) if options.long else (TRAININGS, SEEDS)
    found: list[Result] = []
    for policy in ("fairshare", "fifo"):
        baseline: list[Outcome] = []
        for name, limit in LIMITS.items():
            seen = [played(policy, arrivals(seed, count), limit) for seed in range(seeds)]
            found += _results(f"{policy}, {name}", seen, baseline)
            baseline = baseline or seen
    show(found, options.json)


def _results(name: str, seen: Sequence[Outcome], baseline: Sequence[Outcome]) -> list[Result]:
    def one(what: str, unit: str, of: Callable[[Outcome], float]) -> Result:
        return result(f"{name}: {what}", unit, [*map(of, seen)], "no limits", [*map(of, baseline)])

    return [
        one("utilisation", "", lambda outcome: outcome.utilisation),
        one("mean wait", "h", lambda outcome: outcome.mean_wait / 3600),
        one("queue", "", lambda outcome: max(1, outcome.queue)),
    ]


def arrivals(seed: int, count: int) -> list[Arrival]:
    dice = random.Random(seed)
    mean_size = sum(size * weight for size, weight in zip(SIZES, WEIGHTS, strict=True)) / sum(WEIGHTS)
    between = MEAN_SECONDS * mean_size / (LOAD * SLOTS)
    found, now = [], 0.0
    for _ in range(count):
        now += dice.expovariate(1 / between)
        [size] = dice.choices(SIZES, WEIGHTS)
        found.append(Arrival(now, size, dice.expovariate(1 / MEAN_SECONDS), dice.random()))
    return found


def played(policy: PolicyName, coming: Sequence[Arrival], limit: Limit) -> Outcome:
    """Play from arrival to arrival and end to end; each decision is one cycle of the scheduler."""
    group = GroupView("research", "gpus", policy, preemption=policy == "fairshare")
    refs = (SlotRef(f"host-{number // SLOTS_PER_HOST}", number % SLOTS_PER_HOST) for number in range(SLOTS))
    seen = Snapshot(0.0, (group,), tuple(SlotView(ref, ("gpus",), claimable=True) for ref in refs))
    events = [(one.at, 0, number) for number, one in enumerate(coming)]
    heapify(events)
    last, waits, busy, queue, now = coming[-1].at, dict[int, float](), 0.0, 0, 0.0
    while events:
        at, is_end, number = heappop(events)
        busy += (min(at, last) - min(now, last)) * sum(slot.held_by is not None for slot in seen.slots)
        seen, now = replace(seen, at=at), at
        seen = _without(seen, number) if is_end else _with(seen, number, coming[number], limit)
        placed = run_cycle(seen).placed
        for job, slots in placed.items():
            if slots.claim:
                waits[job] = now - coming[job].at
                heappush(events, (now + coming[job].seconds, 1, job))
        seen = after_cycle(seen, placed)
        if at == last:
            queue = sum(job.state == "PENDING" for job in seen.jobs)
    return Outcome(busy / (last - coming[0].at) / SLOTS, sum(waits.values()) / len(coming), queue)


def _with(seen: Snapshot, number: int, one: Arrival, limit: Limit) -> Snapshot:
    job = JobView(
        number, f"T{number}", "research", "PENDING", 5000, one.at, one.slots, one.slots, elastic=False,
        lasts=limit(one.seconds, one.dice),
    )  # fmt: skip
    return replace(seen, jobs=(*seen.jobs, job))


def _without(seen: Snapshot, number: int) -> Snapshot:
    free = tuple(replace(slot, held_by=None) if slot.held_by == number else slot for slot in seen.slots)
    return replace(seen, jobs=tuple(job for job in seen.jobs if job.id != number), slots=free)


if __name__ == "__main__":
    main()
