"""Nobody overtakes: random turns of jobs of fixed size, of which nobody knows the end, and the order of each line."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from scheduling.plan import Plan
from scheduling.schedule import decided
from scheduling.snapshot import GroupView, JobView, SlotRef, SlotView, Snapshot
from tests.scheduling.cluster import SimulatedCluster

TURNS = 14


@pytest.mark.parametrize("seed", range(60, 140, 20))
def test_nobody_starts_behind_who_waits_and_would_fit(seed: int) -> None:
    """Also in the turn in which that one is stopped: for other groups, a lowered quota, or a higher priority."""
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
    slots = (
        SlotView(SlotRef(host, index), dice.choice(offers), claimable=True) for host in hosts for index in range(4)
    )
    return Snapshot(0.0, groups, tuple(slots))


def _starts_behind(before: Snapshot, plan: Plan, group: GroupView) -> Iterator[tuple[int, int]]:
    """(who waits, who starts behind it) of the group. Under priority with preemption each priority is a line: lower
    ones use what a higher one cannot start on, since it takes that back at any time."""
    targets = {line.job: line.target for line in plan.jobs}
    running = {slot.held_by for slot in before.slots if not slot.vacating}
    capacities = {decision.pool.group.name: decision.capacity for decision, _ in decided(before).groups}
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
