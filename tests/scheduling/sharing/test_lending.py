"""Instance groups over time: what is lent comes back, and random workloads come to rest with everybody's due."""

import random
from collections import Counter
from dataclasses import dataclass, replace
from math import floor

import pytest
from hypothesis import settings

from scheduling.plan import PlanReason
from scheduling.preview import after_cycle
from scheduling.schedule import run_cycle, schedule
from scheduling.sharing.decision import decide
from scheduling.sharing.entitlement import Claimant, in_whole_slots
from scheduling.sharing.pool import index_slots
from scheduling.snapshot import GroupView, JobView, SlotRef, SlotView, Snapshot
from tests.scheduling.checks import check_plan
from tests.scheduling.cluster import SimulatedCluster, group, hold, job, lines, running, slots, targets, text_for
from tests.scheduling.explain.test_reasons import check_reasons

FULL = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1})


def test_a_lent_quota_comes_back_at_once_and_nobody_is_stopped() -> None:
    groups = (group(name="a", quota=6), group(name="b"))
    cluster = SimulatedCluster(Snapshot(0.0, groups, slots(4, 4), (job(1, group="b"),)))
    cluster.settle()
    assert len(cluster.held(1)) == 8
    cluster.submit(job(2, group="a", most=6))
    told = lines(cluster.cycle())
    assert (told[1].target, told[1].reason.code, told[1].preempt) == (2, PlanReason.RECLAIMED_BY_OWNER, False)
    assert text_for(told[1]) == "2 of 2 GPUs: all available GPUs; its group has 2 of 8 GPUs, by its weight of 1."
    assert text_for(told[2]) == "Waits: 6 of 6 GPUs are being released by T1."
    cluster.settle()
    assert (len(cluster.held(1)), len(cluster.held(2))) == (2, 6)
    cluster.end(2)
    cluster.settle()
    assert len(cluster.held(1)) == 8


@pytest.mark.parametrize("policy", ["fifo", "priority", "fairshare"])
def test_a_borrower_shrinks_whatever_its_policy_says_of_its_own_jobs(policy: str) -> None:
    groups = (replace(group(name="b", preemption=False), policy=policy), group(name="a"))
    cluster = SimulatedCluster(Snapshot(0.0, groups, FULL, (running(job(1, group="b")), job(2, group="a"))))
    cluster.settle()
    assert (len(cluster.held(1)), len(cluster.held(2))) == (4, 4)


def test_the_last_slot_that_a_group_cannot_use_is_lent() -> None:
    """a has four of eight, and its only job needs three."""
    groups = (group(name="a"), group(name="b"))
    jobs = (job(1, group="a", least=3, most=3, elastic=False), job(2, group="a", least=2, most=2, elastic=False))
    assert targets(schedule(Snapshot(0.0, groups, slots(4, 4), (*jobs, job(3, group="b"))))) == {1: 3, 2: 0, 3: 5}


def test_shrinks_borrowers_before_stopping_anyone() -> None:
    held = hold(slots(4, 4), {"h1:0-1": 1, "h1:2-3": 2, "h2:0-3": 3})
    fixed = [running(job(n, group="b", least=2, most=2, elastic=False)) for n in (1, 2)]
    elastic = running(job(3, 1, group="b", least=1, most=4))
    groups = (group(name="a", quota=3), group(name="b"))
    plan = lines(schedule(Snapshot(0.0, groups, held, (*fixed, elastic, job(4, group="a", most=3)))))
    assert {number: plan[number].target for number in (1, 2, 3, 4)} == {1: 2, 2: 2, 3: 1, 4: 3}


def test_stops_the_last_in_line_and_says_why() -> None:
    held = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 2})
    fixed = tuple(running(job(n, group="b", least=4, most=4, elastic=False)) for n in (1, 2))
    groups = (group(name="a", quota=4), group(name="b"))
    plan = lines(schedule(Snapshot(0.0, groups, held, (*fixed, job(3, group="a", most=4)))))
    assert (plan[1].preempt, plan[2].preempt) == (False, True)
    assert plan[2].reason.code == PlanReason.RECLAIMED_BY_OWNER
    assert text_for(plan[2]) == (
        "Stops for now and releases 4 GPUs: other groups are entitled to them; "
        "its group has 4 of 8 GPUs, by its weight of 1."
    )


def test_nobody_is_stopped_before_the_minimum_run_time() -> None:
    groups = (group(name="a", quota=4), group(name="b", minimum_run_seconds=60))
    new = replace(running(job(1, group="b", least=8, elastic=False)), started_at=90.0)
    early = Snapshot(100.0, groups, FULL, (new, job(2, group="a", most=4)))
    assert (lines(schedule(early))[1].target, lines(schedule(early))[2].target) == (8, 0)
    late = replace(early, at=150.0)
    assert (lines(schedule(late))[1].preempt, lines(schedule(late))[2].target) == (True, 4)


def test_a_part_too_small_for_the_next_in_line_is_lent_until_it_fits() -> None:
    """The quota of 6 belongs to a; its job needs all 6, and two are held by a job that cannot be stopped yet."""
    groups = (group(name="a", quota=6), group(name="b", minimum_run_seconds=60))
    held = hold(slots(4, 4), {"h1:0-3": 1})
    fixed = replace(running(job(1, group="b", least=4, most=4, elastic=False)), started_at=90.0)
    borrower, gang = job(2, group="b", most=2), job(3, group="a", least=6, most=6)
    cluster = SimulatedCluster(Snapshot(100.0, groups, held, (fixed, borrower, gang)))
    cluster.settle()
    assert (len(cluster.held(1)), len(cluster.held(2)), len(cluster.held(3))) == (4, 2, 0)
    cluster.snapshot = replace(cluster.snapshot, at=200.0)
    cluster.settle()
    assert (len(cluster.held(1)), len(cluster.held(2)), len(cluster.held(3))) == (0, 2, 6)


def test_a_large_minimum_is_not_starved_by_a_stream_of_small_jobs() -> None:
    """Small jobs of another group hold all and come without end; none is stopped before its minute is over. What they
    leave is kept for the one that needs six at once and owns them."""
    groups = (group(name="a", quota=6), group(name="b", minimum_run_seconds=60))
    small = [replace(running(job(n, group="b", most=1)), started_at=-7.0 * n) for n in range(1, 9)]
    held = hold(slots(4, 4), {f"h{1 + (n - 1) // 4}:{(n - 1) % 4}": n for n in range(1, 9)})
    cluster = SimulatedCluster(Snapshot(0.0, groups, held, (*small, job(100, group="a", least=6, most=6))))
    for cycle in range(1, 8):
        cluster.submit(job(100 + cycle, 9000, group="b", most=1))
        cluster.snapshot = replace(cluster.snapshot, at=10.0 * cycle)
        plan = cluster.cycle()
        assert all(line.reason.code == PlanReason.RECLAIMED_BY_OWNER for line in plan.jobs if line.preempt)
        if cluster.held(100):
            break
    assert len(cluster.held(100)) == 6


def test_no_job_is_stopped_for_a_loan_that_its_group_could_have_used_otherwise() -> None:
    """T2 starts on what others cannot use. In the next cycle a loan of two moved T1 off its draining host and stopped
    T2, which needs three; then T2 started again, and so on."""
    offered = (*slots(1, 1, 3), *(replace(slot, claimable=False) for slot in slots(0, 0, 0, 2)))
    held = hold(offered, {"h1:0": 5, "h2:0": 4, "h4:0": 1, "h4:1": 4})
    groups = (
        group("priority", name="a", quota=6, lends=False),
        group("priority", name="b", quota=16, weight=3, borrows=False),
        group("priority", name="c", quota=3, lends=False),
        group(name="d", quota=16),
        group(name="e", quota=16, weight=10),
    )
    jobs = (
        running(job(1, group="c", most=1, submitted_at=20.0)),
        job(2, group="c", least=3, most=4),
        job(3, group="a", least=4, most=5),
        running(job(4, group="d", least=2, most=2, elastic=False)),
        running(job(5, group="e", most=1)),
        job(6, group="b", least=8, most=8),
    )
    cluster = SimulatedCluster(Snapshot(1000.0, groups, held, jobs))
    cluster.settle()
    assert len(cluster.held(2)) == 3
    assert not [line.job for plan in cluster.plans for line in plan.jobs if line.preempt]


def test_a_loan_does_not_depend_on_who_runs_in_the_group() -> None:
    """While T2 ran, its group was lent what T4, of a higher priority, needs, and T2 was stopped. Then the group of T1
    was lent it, T2 started again, and so on."""
    held = hold(slots(1, 4, 4), {"h1:0": 2, "h2:0-2": 5, "h2:3": 2, "h3:0-1": 2, "h3:3": 2})
    groups = (
        group(name="a", quota=6, weight=3, lends=False),
        group("goodput", name="b", quota=4),
        group(name="c", quota=0),
        group("priority", name="d", quota=4),
        group("priority", name="e", quota=4),
    )
    jobs = (
        job(1, group="c", most=2),
        running(job(2, group="e", most=12)),
        job(3, 7000, group="d", least=8, most=9),
        job(4, 7000, group="e", least=6, most=8),
        running(job(5, group="b", least=3, most=3, elastic=False)),
    )
    cluster = SimulatedCluster(Snapshot(1000.0, groups, held, jobs))
    cluster.settle()
    assert sum(line.preempt for plan in cluster.plans for line in plan.jobs) <= 1


def test_a_stopped_group_starts_nothing_and_lends_what_it_leaves() -> None:
    groups = (group(name="a", quota=6, started=False), group(name="b"))
    held = hold(slots(4, 4), {"h1:0-1": 1})
    jobs = (running(job(1, group="a", most=2)), job(2, group="a"), job(3, group="b"))
    plan = lines(schedule(Snapshot(0.0, groups, held, jobs)))
    assert (plan[1].target, plan[2].target, plan[3].target) == (2, 0, 6)
    assert plan[2].reason.code == PlanReason.GROUP_STOPPED
    assert text_for(plan[2]) == ("Waits: its instance group a is stopped. Trainings start once the group is started.")


def test_who_waits_for_its_own_quota_to_be_free_says_so() -> None:
    groups = (group(name="a", quota=2), group(name="b", quota=6))
    jobs = (running(job(1, group="a", most=2)), job(2, group="a", least=2), running(job(3, group="b", most=6)))
    plan = lines(schedule(Snapshot(0.0, groups, hold(slots(4, 4), {"h1:0-1": 1, "h1:2-3": 3, "h2:0-3": 3}), jobs)))
    assert plan[2].reason.code == PlanReason.OVER_QUOTA
    assert text_for(plan[2]) == (
        "Waits for 1 more GPU: it needs 2, and 1 of 2 are the minimum of other trainings; "
        "its group has 2 of 8 GPUs, by its quota of 2 and its weight of 1."
    )
    late = (*jobs[:1], replace(jobs[1], min_slots=4), jobs[2])
    plan = lines(schedule(Snapshot(0.0, groups, hold(slots(4, 4), {"h1:0-1": 1, "h1:2-3": 3, "h2:0-3": 3}), late)))
    assert plan[2].reason.code == PlanReason.OVER_QUOTA
    assert text_for(plan[2]) == (
        "Needs 4 GPUs at once: its group has 2 of 8 GPUs, by its quota of 2 and its weight of 1."
    )


# --- random workloads ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    resource_groups: tuple[str, ...]
    #: Also jobs of fixed size.
    fixed: bool
    #: After how many each group has its due.
    cycles: int


SHARED = Kind(("r1",), fixed=True, cycles=2)
#: One more: a job moves off slots that only another group can use once others are free for its minimum.
OVERLAPPING = Kind(("r1", "r2"), fixed=False, cycles=3)


def workload(seed: int, kind: Kind) -> Snapshot:
    """Up to four groups of any terms, up to seven jobs of which some run, on up to 24 slots."""
    dice = random.Random(seed)
    groups = tuple(_group(name, kind, dice) for name in "abcd"[: dice.randint(1, 4)])
    demands_asked = {
        number: _asked_demand(number, dice.choice(groups), kind, dice) for number in range(1, dice.randint(0, 7) + 1)
    }
    views: list[SlotView] = []
    for host in range(1, dice.randint(1, 4) + 1):
        offers = tuple(dice.choice([kind.resource_groups, kind.resource_groups[:1], kind.resource_groups[-1:]]))
        for index in range(dice.randint(1, 6)):
            views.append(SlotView(SlotRef(f"h{host}", index), offers, claimable=True))
    held = _held(views, demands_asked, {one.name: one for one in groups}, dice)
    views = [replace(view, held_by=held.get(view.ref)) for view in views]
    counts = Counter(held.values())
    jobs = tuple(
        running(asked_demand) if counts[number] else asked_demand for number, asked_demand in demands_asked.items()
    )
    return Snapshot(100.0, groups, tuple(views), jobs)


def _group(name: str, kind: Kind, dice: random.Random) -> GroupView:
    return GroupView(
        name=name,
        resource_group=dice.choice(kind.resource_groups),
        policy=dice.choice(("fairshare", "fairshare", "priority", "fifo")),
        preemption=dice.random() < 0.7,
        quota=dice.choice([None, None, 1, 2, 4, 8]),
        weight=dice.choice([0, 1, 1, 1, 2, 3]),
        borrows=dice.random() < 0.85,
        lends=dice.random() < 0.85,
    )


def _asked_demand(number: int, owner: GroupView, kind: Kind, dice: random.Random) -> JobView:
    elastic = not kind.fixed or dice.random() < 0.75
    least = dice.randint(1, 5)
    most = dice.randint(least, 12) if elastic else least
    priority, at = dice.choice([1, 2500, 5000, 5000, 10000]), float(dice.randint(1, 4))
    return job(number, priority, least=least, most=most, group=owner.name, elastic=elastic, submitted_at=at)


def _held(
    views: list[SlotView], demands_asked: dict[int, JobView], groups: dict[str, GroupView], dice: random.Random
) -> dict[SlotRef, int]:
    """Slot -> who holds it: any slots of its resource group, at least its minimum and exactly a fixed size."""
    held: dict[SlotRef, int] = {}
    for view in views:
        if demands_asked and dice.random() < 0.6:
            asked_demand = demands_asked[dice.choice(list(demands_asked))]
            usable = groups[asked_demand.group].resource_group in view.resource_groups
            if usable and Counter(held.values())[asked_demand.id] < asked_demand.max_slots:
                held[view.ref] = asked_demand.id
    counts = Counter(held.values())
    return {ref: number for ref, number in held.items() if counts[number] >= demands_asked[number].min_slots}


def cycle(snapshot: Snapshot) -> Snapshot:
    """One cycle, and what it takes back is free before the next: ranks leave within a step."""
    return after_cycle(after_cycle(snapshot, lines(schedule(snapshot))), {})


def due(snapshot: Snapshot) -> dict[str, int]:
    """Return what each group is to have: its part rounded down, or what its policy can use in the whole part."""
    index, result = index_slots(snapshot), run_cycle(snapshot)
    entitlements = {one.pool.group.name: one.entitlement for one, _ in result.groups if one.entitlement is not None}
    pools = {name: index.pool(next(one for one in index.groups if one.name == name)) for name in entitlements}
    claimants = [_claimant(name, pools[name].group, snapshot) for name in entitlements]
    parts = {name: entitlement.deserved for name, entitlement in entitlements.items()}
    rounded = in_whole_slots(claimants, parts, index.sizes)
    uses = {name: decide(pool, rounded[name], beside_others=True).used for name, pool in pools.items()}
    return {name: min(floor(parts[name]), uses[name]) for name in entitlements}


def _claimant(name: str, terms: GroupView, snapshot: Snapshot) -> Claimant:
    since = min((view.submitted_at for view in snapshot.jobs if view.group == name), default=0.0)
    return Claimant(name, terms.resource_group, 0, since=since)


def held_by_groups(snapshot: Snapshot) -> Counter[str]:
    groups = {view.id: view.group for view in snapshot.jobs}
    taken = (slot.held_by for slot in snapshot.slots if not slot.vacating)
    return Counter(groups[holder] for holder in taken if holder is not None)


@pytest.mark.parametrize("kind", [SHARED, OVERLAPPING], ids=["one resource group", "overlapping resource groups"])
def test_random_workloads_come_to_rest_and_everybody_has_its_due(kind: Kind) -> None:
    """Within a few cycles each group has at least its part rounded down, or all that it can make use of; and then it
    stays so: a cycle at rest moves nothing."""
    seeds = range(2 * settings().max_examples)  # a thousand where hypothesis explores, too
    for seed in seeds:
        snapshot = workload(seed, kind)
        plan = schedule(snapshot)
        check_plan(snapshot, plan)
        check_reasons(snapshot, plan)
        least = due(snapshot)
        later = snapshot
        for _ in range(kind.cycles):
            later = cycle(later)
        soon = held_by_groups(later)
        assert all(soon[name] >= count for name, count in least.items()), f"workload {seed}: {soon} for {least}"
        cluster = SimulatedCluster(snapshot)
        cluster.settle(limit=12)
        rest = held_by_groups(cluster.snapshot)
        assert all(rest[name] >= count for name, count in least.items()), f"workload {seed} at rest: {rest}"
        at_rest = cluster.cycle()
        assert not [line.job for line in at_rest.jobs if line.claim or line.vacate], f"workload {seed}"
