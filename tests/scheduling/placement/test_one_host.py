"""Jobs that need all their slots on one host: they start on one or not at all, and others make room by moving, live."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings

from scheduling.forecast import Span, forecast
from scheduling.placement.one_host import HostChoices, choose_hosts
from scheduling.plan import PlanReason
from scheduling.schedule import run_cycle, schedule
from scheduling.sharing.pool import too_large_for_hosts
from scheduling.snapshot import JobView, SlotRef, Snapshot
from tests.scheduling.checks import check_plan
from tests.scheduling.cluster import Policy, SimulatedCluster, group, hold, job, lines, running, slots
from tests.scheduling.strategies import snapshots


def whole(number: int, size: int, **fields: int) -> JobView:
    return job(number, least=size, most=size, elastic=False, one_host=True, **fields)


def hosts_of(cluster: SimulatedCluster, number: int) -> set[str]:
    return {ref.host for ref in cluster.held(number)}


def cluster_of(*jobs: JobView, held: dict[str, int], policy: Policy = "fairshare") -> SimulatedCluster:
    return SimulatedCluster(Snapshot(0.0, (group(policy),), hold(slots(4, 4), held), jobs))


def refs(places: str) -> list[SlotRef]:
    """`"a0 b12"`: these slots of the hosts a and b."""
    return [SlotRef(place[0], int(index)) for place in places.split() for index in place[1:]]


@pytest.mark.parametrize(
    ("count", "free", "coming", "movable", "kept", "moving"),
    [
        (1, "a012 b0", "", "", "b0", ""),  # the tightest
        (2, "a0 b01", "a1", "", "b01", ""),  # free rather than coming
        (2, "a0", "b01", "a1", "", ""),  # coming rather than held by one that moves
        (4, "a01", "b012", "a23 b3", "", "b3"),  # fewest have to move
        (2, "a0 b01234", "a1", "", "b01", ""),
        (2, "a01 b012", "a234", "", "b01", ""),
        (2, "", "a01", "", "", ""),
        (2, "b01 a01", "", "", "a01", ""),
        (2, "a0 b0", "c0", "d0", None, ""),
    ],
)
def test_fewest_move_then_most_is_free_then_the_host_is_the_tightest(
    count: int, free: str, coming: str, movable: str, kept: str | None, moving: str
) -> None:
    host_choices = HostChoices()
    choose_hosts(host_choices, {1: count}, refs(free), refs(coming), [(9, ref) for ref in refs(movable)])
    assert host_choices.kept_for == ({} if kept is None else {1: tuple(refs(kept))})
    assert host_choices.moving[9] == set(refs(moving))


def test_what_one_takes_of_a_host_is_there_for_no_other() -> None:
    host_choices = HostChoices()
    movable = [(8, ref) for ref in refs("a23")]
    choose_hosts(host_choices, {1: 9, 2: 3, 3: 2}, refs("a0"), refs("a1"), movable)
    assert host_choices.kept_for == {2: (SlotRef("a", 0),)}
    assert host_choices.moving == {8: {SlotRef("a", 2)}}


def test_no_host_has_room_where_there_is_none() -> None:
    assert too_large_for_hosts([whole(1, 1)], []) == {1: 0}
    assert too_large_for_hosts([whole(1, 2), whole(2, 3)], refs("a01 b0")) == {2: 2}


def test_it_starts_at_once_on_the_tightest_host_that_is_enough() -> None:
    cluster = cluster_of(whole(1, 2), running(job(2, most=2, elastic=False, least=2)), held={"h1:0-1": 2})
    assert {ref.host for ref in lines(cluster.cycle())[1].claim} == {"h1"}


@pytest.mark.parametrize("policy", ["fairshare", "priority", "fifo", "goodput"])
def test_what_is_free_on_several_hosts_is_brought_together(policy: Policy) -> None:
    """Two elastic trainings that keep their size; one of them moves."""
    jobs = running(job(1, most=2)), running(job(2, most=2)), whole(3, 4)
    cluster = cluster_of(*jobs, held={"h1:0-1": 1, "h2:0-1": 2}, policy=policy)
    line = lines(cluster.cycle())
    assert (line[3].target, line[3].slots) == (4, ())
    moved = line[1] if line[1].vacate else line[2]
    assert (moved.target, len(moved.slots), moved.reason.code) == (2, 2, PlanReason.REBALANCED)
    cluster.settle()
    assert len(cluster.held(3)) == 4
    assert len(hosts_of(cluster, 3)) == 1
    assert [len(cluster.held(number)) for number in (1, 2)] == [2, 2]


def test_who_shrinks_for_it_gives_back_slots_of_one_host() -> None:
    cluster = cluster_of(running(job(1)), whole(2, 4), held={"h1:0-3": 1, "h2:0-3": 1})
    cluster.settle()
    assert (len(cluster.held(2)), len(hosts_of(cluster, 2))) == (4, 1)
    assert len(cluster.held(1)) == 4


def test_it_waits_where_jobs_of_fixed_size_are_in_the_way_and_others_pass() -> None:
    fixed = [running(job(number, least=2, most=2, elastic=False)) for number in (1, 2)]
    cluster = cluster_of(*fixed, whole(3, 4), job(4, most=4), held={"h1:0-1": 1, "h2:0-1": 2})
    line = lines(cluster.cycle())
    assert (line[3].target, line[4].target) == (0, 4)
    assert line[3].reason.params == {"message": "one_host", "min_slots": 4, "most": 2}
    cluster.end(1)
    cluster.settle()
    assert hosts_of(cluster, 3) == {"h1"}
    assert len(cluster.held(4)) == 2


def test_what_is_free_there_is_kept_for_it() -> None:
    """Somebody who comes later takes none of it."""
    jobs = running(job(1, most=3, least=3)), whole(2, 4), job(3, least=1, most=1, elastic=False)
    cluster = cluster_of(*jobs, held={"h1:0": 1, "h2:0-1": 1})
    cluster.cycle()
    assert hosts_of(cluster, 3) <= {"h2"}
    cluster.settle()
    assert hosts_of(cluster, 2) == {"h1"}
    assert hosts_of(cluster, 1) == {"h2"}


def test_jobs_of_other_groups_move_for_it_too() -> None:
    own, other = group("fairshare"), group("fairshare", name="other")
    jobs = whole(1, 4), running(job(2, most=2, group="other")), running(job(3, most=2, group="other"))
    held = hold(slots(4, 4), {"h1:0-1": 2, "h2:0-1": 3})
    cluster = SimulatedCluster(Snapshot(0.0, (own, other), held, jobs))
    cluster.settle()
    assert len(hosts_of(cluster, 1)) == 1
    assert [len(cluster.held(number)) for number in (1, 2, 3)] == [4, 2, 2]


def test_two_of_them_find_a_host_each_or_one_waits() -> None:
    cluster = cluster_of(running(job(1)), whole(2, 4), whole(3, 3), held={"h1:0-3": 1, "h2:0-3": 1})
    cluster.settle()
    assert [len(cluster.held(number)) for number in (1, 2, 3)] == [1, 4, 3]
    assert hosts_of(cluster, 2) != hosts_of(cluster, 3)


@settings(deadline=None, max_examples=40)
@given(snapshots())
def test_nobody_keeps_slots_waiting_that_it_never_gets(snapshot: Snapshot) -> None:
    """At rest each that has a target trains on it, whichever resource groups overlap."""
    cluster = SimulatedCluster(snapshot)
    cluster.settle(limit=15)
    for line in cluster.cycle().jobs:
        view = next(one for one in snapshot.jobs if one.id == line.job)
        if view.one_host and len({one.resource_group for one in snapshot.groups}) == 1:
            assert bool(line.target) == bool(line.slots)


def test_random_turns_on_a_cluster_that_is_used_by_both_kinds() -> None:
    """Trainings come and end at random: no plan is unsound, and whoever fits a host starts once others have ended."""
    chance = random.Random(15)
    for _ in range(6):
        cluster = SimulatedCluster(
            Snapshot(0.0, (group(chance.choice(["fairshare", "priority", "fifo"])),), slots(4, 4, 2))
        )
        for number in range(1, 30):
            size = chance.randint(1, 4)
            new = chance.choice(
                [whole(number, size), job(number, most=6), job(number, least=size, most=size, elastic=False)]
            )
            cluster.submit(replace(new, priority=chance.choice([2500, 5000])))
            for _ in range(chance.randint(0, 3)):
                before = cluster.snapshot
                check_plan(before, cluster.cycle())
            if chance.random() < 0.5:
                cluster.end(chance.choice(cluster.snapshot.jobs).id)
        waiting = {view.id for view in cluster.snapshot.jobs if view.one_host and not cluster.held(view.id)}
        for view in cluster.snapshot.jobs:
            if view.id not in waiting:
                cluster.end(view.id)
        while waiting:
            cluster.settle()
            started = {number for number in waiting if cluster.held(number)}
            assert started
            assert all(len(hosts_of(cluster, number)) == 1 for number in started)
            for number in started:
                cluster.end(number)
            waiting -= started


def test_nobody_says_when_at_the_latest_so_many_are_on_one_host() -> None:
    """Four are free once T1 is over: whether T2 is on one host of them then is not played."""
    ends = running(job(1, least=4, most=4, elastic=False, ends_at=100.0))
    jobs = (ends, running(job(2, least=4, most=4)), whole(3, 4))
    snapshot = Snapshot(0.0, (group(),), hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 2}), jobs)
    seen = forecast(run_cycle(snapshot).decision(3), 3, {}).start
    assert seen is not None
    assert seen.latest is None
    line = lines(schedule(snapshot))[3]
    assert (line.target, line.reserved) == (0, ())
    assert "reserved_at" not in line.reason.params
    anywhere = replace(snapshot, jobs=(*jobs[:2], replace(jobs[2], one_host=False)))
    assert lines(schedule(anywhere))[3].reason.params["reserved_at"] == 100
    assert forecast(run_cycle(anywhere).decision(3), 3, {}).start == Span(0.0, 100.0)
