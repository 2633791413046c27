"""Nobody overtakes, and nobody is stopped for nothing: random turns of jobs, and the order of each line."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from scheduling.plan import Plan
from scheduling.schedule import run_cycle
from scheduling.snapshot import GroupView, JobView, SlotRef, SlotView, Snapshot
from tests.scheduling.checks import check_plan
from tests.scheduling.cluster import SimulatedCluster, slots

TURNS = 14
NOW = 10_000.0


@pytest.mark.parametrize("seed", range(60, 140, 20))
def test_nobody_starts_behind_who_waits_and_would_fit(seed: int) -> None:
    """Jobs of fixed size of which nobody knows the end; also in the turn in which the one that waits is stopped: for
    other groups, a lowered quota, or a higher priority."""
    started = 0
    for number in range(seed, seed + 20):
        for before, plan in _turns(number):
            starts = [job for group in before.groups for job in _starts_behind(before, plan, group)]
            assert not starts, f"seed {number}: {starts}"
            started += sum(bool(line.claim) for line in plan.jobs)
    assert started > 50


def _turns(seed: int) -> Iterator[tuple[Snapshot, Plan]]:
    """Jobs come and end, and terms of groups change."""
    dice = random.Random(seed)
    cluster = SimulatedCluster(_empty(dice))
    number = 0
    for turn in range(TURNS):
        groups = list(cluster.snapshot.groups)
        for _ in range(dice.choice((0, 1, 1, 2))):
            number, size = number + 1, dice.randint(1, 6)
            owner, priority = dice.choice(groups).name, dice.choice((1000, 5000, 9000))
            cluster.submit(JobView(number, "", owner, "PENDING", priority, float(turn), size, size, elastic=False))
        if cluster.snapshot.jobs and dice.random() < 0.35:
            cluster.end(dice.choice(cluster.snapshot.jobs).id)
        if dice.random() < 0.5:
            place = dice.randrange(len(groups))
            groups[place] = replace(groups[place], quota=dice.choice((None, 2, 4, 6)), weight=dice.choice((0, 1, 2)))
            cluster.snapshot = replace(cluster.snapshot, groups=tuple(groups))
        before = cluster.snapshot
        yield before, cluster.cycle()


def _empty(dice: random.Random) -> Snapshot:
    offers = [("r1",), ("r1", "r2"), ("r2",)] if dice.random() < 0.3 else [("r1",)]
    groups = tuple(
        GroupView(
            name=name,
            resource_group=dice.choice(dice.choice(offers)),
            policy=dice.choice(("fairshare", "priority", "fifo", "goodput")),
            preemption=dice.random() < 0.7,
            quota=dice.choice((None, None, 2, 4, 6)),
            weight=dice.choice((0, 1, 1, 2)),
            borrows=dice.random() < 0.7,
            lends=dice.random() < 0.8,
        )
        for name in "abc"[: dice.randint(1, 3)]
    )
    hosts = [f"h{host}" for host in range(dice.randint(1, 3))]
    offered = (
        SlotView(SlotRef(host, index), dice.choice(offers), claimable=True) for host in hosts for index in range(4)
    )
    return Snapshot(0.0, groups, tuple(offered))


def _starts_behind(before: Snapshot, plan: Plan, group: GroupView) -> Iterator[tuple[int, int]]:
    """Yield pairs of a waiting job and a job that starts behind it in the group. Under priority with preemption, each
    priority is a queue of its own: lower jobs use slots on which no higher job can start, until it takes them."""
    targets = {line.job: line.target for line in plan.jobs}
    running = {slot.held_by for slot in before.slots if not slot.vacating}
    capacities = {decision.pool.group.name: decision.capacity for decision, _ in run_cycle(before).groups}
    has_levels = group.policy == "priority" and group.preemption
    first: dict[int, int] = {}
    for job in _line(group, [job for job in before.jobs if job.group == group.name]):
        level = job.priority if has_levels else 0
        if not targets[job.id] and job.max_slots <= capacities[group.name]:
            first.setdefault(level, job.id)
        elif targets[job.id] and job.id not in running and level in first:
            yield first[level], job.id


def _line(group: GroupView, jobs: list[JobView]) -> list[JobView]:
    if group.policy == "fifo":
        return sorted(jobs, key=lambda job: (job.submitted_at, job.id))
    return sorted(jobs, key=lambda job: (-job.priority, job.submitted_at, job.id))


def test_nobody_is_stopped_only_to_start_again() -> None:
    """Jobs of all kinds come and end in two or three groups, a turn each minute, and each turn comes to rest."""
    stops = 0
    for seed in range(15, 35):
        dice = random.Random(seed)
        cluster = SimulatedCluster(_shared(dice))
        for turn in range(40):
            _come_and_end(cluster, dice, number=turn + 1, is_late=turn >= 25)
            stopped: set[int] = set()
            for _ in range(8):
                before, plan = cluster.snapshot, cluster.cycle()
                check_plan(before, plan)
                again = stopped.intersection(line.job for line in plan.jobs if line.claim)
                assert not again, f"seed {seed}, turn {turn}: {again}"
                stopped.update(line.job for line in plan.jobs if line.preempt)
                if cluster.snapshot == before:
                    break
            stops += len(stopped)
    assert stops > 5


def _shared(dice: random.Random) -> Snapshot:
    groups = tuple(
        GroupView(
            name=name,
            resource_group="rg",
            policy=dice.choice(("fairshare", "priority", "fifo")),
            preemption=dice.random() < 0.7,
            quota=dice.choice((None, None, 2, 4)),
            weight=dice.choice((1, 1, 1, 2)),
        )
        for name in "abc"[: dice.randint(2, 3)]
    )
    return Snapshot(NOW, groups, slots(4, 4))


def _come_and_end(cluster: SimulatedCluster, dice: random.Random, *, number: int, is_late: bool) -> None:
    cluster.snapshot = replace(cluster.snapshot, at=NOW + 60 * number)
    if not is_late and dice.random() < 0.4:
        size, elastic = dice.choice((1, 2, 3, 4, 6)), dice.random() < 0.4
        owner, priority = dice.choice(cluster.snapshot.groups).name, dice.choice((1000, 5000, 9000))
        most, at = (8 if elastic else size), cluster.snapshot.at
        cluster.submit(JobView(number, "", owner, "PENDING", priority, at, size, most, elastic=elastic))
    if cluster.snapshot.jobs and dice.random() < 0.25:
        cluster.end(dice.choice(cluster.snapshot.jobs).id)
