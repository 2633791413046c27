"""Tests of the choice of victims: elastic trainings shrink first, then those stop that lose least."""

import random
from dataclasses import replace
from itertools import combinations

import pytest

from scheduling.plan import PlanReason
from scheduling.policies.shares import to_stop
from scheduling.schedule import schedule
from scheduling.sharing.division import WAITED_SECONDS
from scheduling.snapshot import JobView, Snapshot
from tests.scheduling.cluster import SimulatedCluster, group, hold, job, lines, running, slots, targets, text_for
from tests.scheduling.policies.test_shares import asks

NOW = 1000.0
GROUPS = (group(name="a", quota=4), group(name="b"))
HALVES = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 2})


def fixed(number: int, saved: float, *, size: int = 4, name: str = "b", **fields: object) -> JobView:
    """Return a running job whose last checkpoint is `saved` seconds old."""
    view = job(number, group=name, least=size, most=size, elastic=False, unsaved_since=NOW - saved)
    return running(replace(view, **fields))  # type: ignore[arg-type]


def owner_comes(*jobs: JobView) -> Snapshot:
    """Group a, which owns four of eight, asks for them; b's jobs 1 and 2 hold four each."""
    return Snapshot(NOW, GROUPS, HALVES, (*jobs, job(9, group="a", least=4, most=4)))


@pytest.mark.parametrize(("first", "second", "stopped"), [(10.0, 500.0, 1), (500.0, 10.0, 2), (10.0, 10.0, 2)])
def test_who_loses_least_is_stopped(first: float, second: float, stopped: int) -> None:
    plan = lines(schedule(owner_comes(fixed(1, first), fixed(2, second))))
    assert {number for number, line in plan.items() if line.preempt} == {stopped}
    assert plan[stopped].reason.code == PlanReason.RECLAIMED_BY_OWNER
    lost = {1: first, 2: second}[stopped] * 4
    assert plan[stopped].reason.params["loses_minutes"] - 1 < lost / 60 <= plan[stopped].reason.params["loses_minutes"]


def test_many_slots_lose_more_in_the_same_time() -> None:
    held = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-1": 2, "h2:2-3": 3})
    jobs = (fixed(1, 100.0), fixed(2, 150.0, size=2), fixed(3, 160.0, size=2))
    groups = (group(name="a", quota=2), group(name="b"))
    plan = schedule(Snapshot(NOW, groups, held, (*jobs, job(9, group="a", least=2, most=2))))
    assert targets(plan) == {1: 4, 2: 0, 3: 2, 9: 2}


def test_who_cannot_continue_is_stopped_last() -> None:
    plan = lines(schedule(owner_comes(fixed(1, 9000.0), fixed(2, 0.0, continues=False))))
    assert (plan[1].preempt, plan[2].preempt) == (True, False)
    plan = lines(schedule(owner_comes(fixed(1, 9000.0, continues=False), fixed(2, 0.0, continues=False))))
    assert (plan[2].preempt, plan[2].reason.params["continues"]) == (True, False)


def test_of_equal_priorities_the_cheapest_backfilled_for_a_higher_one() -> None:
    policy = (group("priority"),)
    jobs = (fixed(1, 10.0, name="g"), fixed(2, 500.0, name="g"), job(9, 9000, least=4, most=4))
    assert targets(schedule(Snapshot(NOW, policy, HALVES, jobs))) == {1: 0, 2: 4, 9: 4}


def test_a_lower_priority_is_stopped_whatever_it_loses() -> None:
    """Else it would be stopped a cycle later, by the one that was stopped in its place."""
    policy = (group("priority"),)
    jobs = (fixed(1, 10.0, name="g", priority=6000), fixed(2, 500.0, name="g"), job(9, 9000, least=4, most=4))
    assert targets(schedule(Snapshot(NOW, policy, HALVES, jobs))) == {1: 4, 2: 0, 9: 4}
    groups = (GROUPS[0], replace(GROUPS[1], policy="priority"))
    plan = schedule(replace(owner_comes(fixed(1, 10.0, priority=6000), fixed(2, 500.0)), groups=groups))
    assert targets(plan) == {1: 4, 2: 0, 9: 4}


def test_a_moved_job_of_fixed_size_is_the_cheapest() -> None:
    """Only two of h1's four are left for b, whose jobs can all use h2."""
    offers = {"h1": ("r1", "r2"), "h2": ("r2",)}
    places = tuple(replace(slot, resource_groups=offers[slot.ref.host]) for slot in slots(4, 4))
    groups = (group(name="a", rg="r1", quota=2), group(name="b", rg="r2"))
    jobs = (fixed(1, 900.0, size=2), fixed(2, 10.0, size=2), job(9, group="a", least=2, most=2))
    plan = lines(schedule(Snapshot(NOW, groups, hold(places, {"h1:0-1": 1, "h1:2-3": 2}), jobs)))
    assert (plan[1].preempt, plan[2].preempt) == (False, True)


def test_who_is_stopped_keeps_its_place_in_line() -> None:
    cluster = SimulatedCluster(owner_comes(fixed(1, 10.0), fixed(2, 500.0)))
    cluster.submit(job(10, group="b", least=4, most=4))
    cluster.settle()
    assert [len(cluster.held(number)) for number in (1, 2, 9, 10)] == [0, 4, 4, 0]
    cluster.end(9)
    cluster.settle()
    assert [len(cluster.held(number)) for number in (1, 2, 10)] == [4, 4, 0]


def test_nobody_starts_behind_who_is_stopped_for_its_groups_quota() -> None:
    """T1 keeps 4 of a quota of 6. The stopped T2 waits before T3, which would otherwise keep the other two for good."""
    limited = (group(name="b", quota=6, borrows=False),)
    held = hold(slots(4, 4, 4), {"h1:0-3": 1, "h2:0-3": 2})
    jobs = (fixed(1, 500.0), fixed(2, 10.0), job(3, group="b", least=2, most=2, elastic=False))
    cluster = SimulatedCluster(Snapshot(NOW, limited, held, jobs))
    plan = lines(cluster.cycle())
    assert (plan[1].target, plan[2].preempt, plan[3].target) == (4, True, 0)
    assert plan[2].reason.code == PlanReason.RECLAIMED_BY_OWNER
    assert text_for(plan[3]) == "Waits behind T2, which was submitted first and needs 4 GPUs."
    cluster.settle()
    assert [len(cluster.held(number)) for number in (1, 2, 3)] == [4, 0, 0]
    cluster.end(1)
    cluster.settle()
    assert [len(cluster.held(number)) for number in (2, 3)] == [4, 2]


def test_who_is_over_in_time_starts_before_who_is_stopped_for_its_groups_quota() -> None:
    limited = (group(name="b", quota=6, borrows=False),)
    held = hold(slots(4, 4, 4), {"h1:0-3": 1, "h2:0-3": 2})
    brief = job(3, group="b", least=2, most=2, elastic=False, lasts=50.0)
    jobs = (fixed(1, 500.0, ends_at=NOW + 100), fixed(2, 10.0), brief)
    plan = lines(schedule(Snapshot(NOW, limited, held, jobs)))
    assert (plan[2].preempt, len(plan[3].claim)) == (True, 2)


def test_nobody_counts_on_what_who_is_stopped_for_another_group_waits_for() -> None:
    """Two of T2's four are b's part still: T3 has no target there, before T2 starts again."""
    held = hold(slots(4, 4, 2), {"h1:0-3": 1, "h2:0-3": 2})
    jobs = (fixed(1, 500.0), fixed(2, 10.0), job(3, group="b", least=2, most=2, elastic=False))
    owner = job(9, group="a", least=4, most=4)
    plan = lines(schedule(Snapshot(NOW, GROUPS, held, (*jobs, owner))))
    assert (plan[2].preempt, plan[3].target, plan[9].target) == (True, 0, 4)


def test_nobody_is_stopped_for_others_to_start_again_on_more_than_its_groups_part() -> None:
    """T1 has six of b's four, and T2 of a, which shrinks as far as one, would have to leave them to it again."""
    held = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-1": 1})
    jobs = (fixed(1, 10.0, size=6, submitted_at=NOW - WAITED_SECONDS), job(2, group="a", submitted_at=NOW))
    cluster = SimulatedCluster(Snapshot(NOW, (group(name="a"), group(name="b")), held, jobs))
    for _ in range(4):
        plan = lines(cluster.cycle())
        assert (plan[1].target, plan[2].target) == (6, 2)
    later = replace(jobs[0], submitted_at=NOW - WAITED_SECONDS + 1)
    plan = lines(schedule(Snapshot(NOW, cluster.snapshot.groups, held, (later, jobs[1]))))
    assert plan[1].preempt


def test_stops_are_needed_and_spare_who_cannot_continue() -> None:
    """Against every set of jobs that would do."""
    for seed in range(300):
        dice = random.Random(seed)
        ones = [
            replace(
                asks(number, least=dice.randint(1, 4), held=4),
                loses=float(dice.randint(0, 5)),
                continues=dice.random() < 0.6,
                protected=dice.random() < 0.2,
            )
            for number in range(1, dice.randint(2, 7))
        ]
        excess, by_id = dice.randint(1, 8), {one.id: one for one in ones}
        stopped = to_stop(group(), ones, excess)
        able = [one.id for one in ones if not one.protected]
        sets = [set(some) for count in range(len(able) + 1) for some in combinations(able, count)]
        enough = [some for some in sets if sum(by_id[number].least for number in some) >= excess]
        if not enough:
            assert stopped == set(able)
            continue
        assert set(stopped) in enough
        assert not any(some < stopped for some in enough)
        # Nobody who begins from nothing, where others would do; of those others, the ones that lose least.
        restarts = [some for some in enough if all(by_id[number].continues for number in some)]
        assert not restarts or set(stopped) in restarts
        spared = [one for one in ones if one.id in able and one.id not in stopped]
        for one in stopped:
            mine = by_id[one]
            cheaper = [
                other
                for other in spared
                if other.continues >= mine.continues and other.loses < mine.loses and other.least >= mine.least
            ]
            assert not cheaper, f"seed {seed}: {one} is stopped"


def test_nobody_starts_behind_who_is_stopped_on_what_that_one_waits_for() -> None:
    """T1 has to leave 4 GPUs for T2, which needs 3 until second 100: T3 is not to start on what is left."""
    jobs = (
        running(job(1, 1000, least=4, most=4, elastic=False)),
        job(2, 9000, least=3, most=3, elastic=False, lasts=100.0),
        job(3, 1000, least=3, most=3, elastic=False),
    )
    cluster = SimulatedCluster(Snapshot(0.0, (group("priority"),), hold(slots(6), {"h1:0-3": 1}), jobs))
    plan = lines(cluster.cycle())
    assert (plan[1].preempt, plan[2].target, plan[3].target) == (True, 3, 0)
    assert text_for(plan[3]) == "Waits behind T1, which was submitted first and needs 4 GPUs."
    cluster.settle()
    cluster.end(2)
    cluster.settle()
    assert (len(cluster.held(1)), len(cluster.held(3))) == (4, 0)
