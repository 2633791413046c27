"""Cost of one cycle of the scheduler, and its growth with jobs and slots.

    python -m benchmarks.scheduler [--long] [--json FILE]

A cycle is `schedule(snapshot)`: reading the database and writing the plan are not in it. For each size and policy two
cycles are measured: `first`, in which every job waits and every slot is free, and `steady`, some cycles later, in which
as many run as fit and the others wait. The ratio is to the next smaller size in the same run: ten times as many jobs
and slots that cost ten times as much are linear.

`10 groups` is the same jobs in ten instance groups with quotas and weights on one resource group; its ratio is to the
one group of the same size. `overlapping` is the largest size with a resource group for each instance group: of ten,
each host is in half of them, at random; of a hundred in a chain, in one, or in one and the next; of a hundred in pairs,
in two at random.

Jobs ask for up to 1 to 32 GPUs with priorities from a fixed seed, 1.5 times as many in all as there are; a tenth needs
at least 4 at once. Times are the processor's, a cycle's without the garbage collector, as in the scheduler. A preview
is measured without its queries here, and by `benchmarks.previews` with them.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.results import Result, arguments, result, show
from core.process import without_collector
from scheduling.forecast import Work, forecast
from scheduling.preview import preview, with_job
from scheduling.schedule import schedule
from scheduling.snapshot import GroupView, JobView, PolicyName, SlotRef, SlotView, Snapshot
from tests.scheduling.cluster import SimulatedCluster

#: (jobs, slots).
SIZES = ((100, 1_000), (1_000, 10_000), (10_000, 100_000))
POLICIES: tuple[PolicyName, ...] = ("fairshare", "priority", "fifo")
SLOTS_PER_HOST = 8
REPEATS = 7
GROUPS = 10
WAITING = (100, 400, 1_000, 4_000)
PREVIEWED = (20, 400)

#: The resource groups of a host, by its place among all (from 0 to 1).
Offer = Callable[[random.Random, float, Sequence[str]], tuple[str, ...]]


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    found: list[Result] = []
    for policy in POLICIES if options.long else POLICIES[:1]:
        former: dict[str, list[float]] = {}
        for jobs, slots in SIZES:
            for kind, snapshot in cycles(policy, jobs, slots).items():
                times = measured(snapshot, REPEATS)
                name = f"{policy}, {kind}: {jobs:,} jobs on {slots:,}"
                found.append(result(name, "ms", times, "the size before", former.get(kind, ())))
                former[kind] = times
    found += shared() + overlapping() + queue() + previews()
    show(found, options.json)


def shared() -> list[Result]:
    """A snapshot shared by instance groups: each policy decides about its own jobs, some of them more than once."""
    found = []
    for jobs, slots in SIZES:
        alone = cycles("fairshare", jobs, slots)
        for kind, snapshot in cycles("fairshare", jobs, slots, groups=GROUPS).items():
            times, former = measured(snapshot, REPEATS), measured(alone[kind], REPEATS)
            name = f"{GROUPS} groups, {kind}: {jobs:,} jobs on {slots:,}"
            found.append(result(name, "ms", times, "one group", former))
    return found


def overlapping() -> list[Result]:
    """A snapshot of instance groups that share only some of their slots; see `scheduling.sharing.flow`."""
    jobs, slots = SIZES[-1]
    alone, found = cycles("fairshare", jobs, slots), []
    for groups, how, offer in OVERLAPS:
        first = offered(divided(many_jobs("fairshare", jobs, slots), groups), offer)
        for kind, snapshot in after_some(first).items():
            times, former = measured(snapshot, REPEATS), measured(alone[kind], REPEATS)
            found.append(result(f"{groups} overlapping {how}, {kind}", "ms", times, "one group", former))
    return found


def queue() -> list[Result]:
    """Nearly everybody waits: the sentences say for whom."""
    found, former = list[Result](), list[float]()
    for waiting in WAITING:
        times = measured(cycles("fairshare", waiting, 8)["steady"], REPEATS)
        found.append(result(f"fairshare: {waiting:,} wait for 8", "ms", times, "the size before", former))
        former = times
    return found


def previews() -> list[Result]:
    """Previews of one more training where many wait: two or three plans, and the policy played forward twice."""
    found = []
    for waiting in PREVIEWED:
        without = cycles("fairshare", waiting, 8)["steady"]
        new = JobView(waiting + 1, "new", "research", "PENDING", 5000, 1e9, 1, 8)
        works = {job: Work((100.0, 200.0), (50.0, 100.0)) for job in range(1, waiting + 2)}
        times = []
        for _ in range(REPEATS):
            begun = time.process_time()
            with_it = with_job(without, new)
            forecast(preview(without, with_it, new.id).decision, new.id, works)
            times.append(1000 * (time.process_time() - begun))
        found.append(result(f"preview: {waiting:,} wait for 8", "ms", times))
    return found


def measured(snapshot: Snapshot, repeats: int) -> list[float]:
    schedule(snapshot)
    times = []
    for _ in range(repeats):
        with without_collector():
            begun = time.process_time()
            schedule(snapshot)
            times.append(1000 * (time.process_time() - begun))
    return times


def cycles(policy: PolicyName, jobs: int, slots: int, groups: int = 1) -> dict[str, Snapshot]:
    first = many_jobs(policy, jobs, slots)
    if groups > 1:
        first = divided(first, groups)
    return after_some(first)


def after_some(first: Snapshot) -> dict[str, Snapshot]:
    cluster = SimulatedCluster(first)
    for _ in range(3):
        cluster.cycle()
    return {"first": first, "steady": cluster.snapshot}


def many_jobs(policy: PolicyName, jobs: int, slots: int) -> Snapshot:
    """Every job waits, every slot is free."""
    dice = random.Random(jobs)
    group = GroupView("research", "gpus", policy, preemption=True)
    demands_asked = [dice.choice((1, 2, 4, 8, 16, 32)) for _ in range(jobs)]
    enough = max(1.0, 1.5 * slots / sum(demands_asked))
    return Snapshot(
        at=0.0,
        groups=(group,),
        slots=tuple(
            SlotView(
                SlotRef(f"host-{number // SLOTS_PER_HOST:05d}", number % SLOTS_PER_HOST), ("gpus",), claimable=True
            )
            for number in range(slots)
        ),
        jobs=tuple(_job(number, round(most * enough), dice) for number, most in enumerate(demands_asked, start=1)),
    )


def divided(snapshot: Snapshot, groups: int) -> Snapshot:
    """The jobs in turn to this many groups; together their quotas are half of what there is."""
    [whole] = snapshot.groups
    quota = len(snapshot.slots) // (2 * groups)
    names = [f"{whole.name}-{number}" for number in range(groups)]
    parts = tuple(replace(whole, name=name, quota=quota, weight=1 + number % 3) for number, name in enumerate(names))
    jobs = tuple(replace(job, group=names[job.id % groups]) for job in snapshot.jobs)
    return replace(snapshot, groups=parts, jobs=jobs)


def offered(snapshot: Snapshot, offer: Offer) -> Snapshot:
    """Each instance group on a resource group of its own, which some of the hosts offer."""
    names = [f"gpus-{number}" for number in range(len(snapshot.groups))]
    groups = tuple(replace(one, resource_group=name) for one, name in zip(snapshot.groups, names, strict=True))
    hosts = sorted({slot.ref.host for slot in snapshot.slots})
    dice = random.Random(len(names))
    offers = {host: offer(dice, number / len(hosts), names) for number, host in enumerate(hosts)}
    slots = tuple(replace(slot, resource_groups=offers[slot.ref.host]) for slot in snapshot.slots)
    return replace(snapshot, groups=groups, slots=slots)


def _half(dice: random.Random, place: float, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if dice.random() < 0.5) or (dice.choice(names),)


def _chained(dice: random.Random, place: float, names: Sequence[str]) -> tuple[str, ...]:
    first = int(place * len(names))
    return tuple(names[first : first + dice.choice((1, 2))])


def _two(dice: random.Random, place: float, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(dice.sample(names, 2)))


OVERLAPS: tuple[tuple[int, str, Offer], ...] = (
    (10, "at random", _half),
    (100, "in a chain", _chained),
    (100, "in pairs", _two),
)


def _job(number: int, most: int, dice: random.Random) -> JobView:
    view = JobView(number, f"T{number}", "research", "PENDING", 5000, float(number), 1, most, owner=number % 50)
    return replace(
        view,
        priority=dice.choice((1000, 2500, 5000, 5000, 10000)),
        min_slots=4 if most >= 4 and number % 10 == 0 else 1,
    )


if __name__ == "__main__":
    main()
