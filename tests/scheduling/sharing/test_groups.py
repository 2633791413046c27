"""Several instance groups over the same slots: nobody takes what another one holds or counts on."""

from dataclasses import replace

import pytest

from scheduling.schedule import schedule
from scheduling.snapshot import Snapshot
from tests.scheduling.cluster import SimulatedCluster, group, hold, job, lines, running, slots, targets

BOTH = (group(name="b"), group(name="a"))


def test_what_one_group_leaves_of_its_part_the_other_gets() -> None:
    snapshot = Snapshot(0.0, BOTH, slots(4, 4), (job(1, group="b"), job(2, group="a", most=3)))
    assert targets(schedule(snapshot)) == {1: 5, 2: 3}


def test_slots_held_by_another_group_are_out_of_reach() -> None:
    held = hold(slots(4, 4), {"h1:0-3": 1})
    snapshot = Snapshot(0.0, BOTH, held, (running(job(1, group="b", most=4)), job(2, group="a")))
    assert targets(schedule(snapshot)) == {1: 4, 2: 4}


def test_free_slots_that_an_earlier_group_waits_to_complete_are_left_alone() -> None:
    """Job 1 needs 4: two are free, two more come back. Group b must not start on the free ones."""
    held = hold(slots(4), {"h1:0": 9, "h1:1": 9})
    owner = (group(name="a", quota=4), group(name="b"))
    snapshot = Snapshot(0.0, owner, held, (job(1, group="a", least=4, most=4), job(2, group="b")))
    assert targets(schedule(snapshot)) == {1: 4, 2: 0}


def test_what_comes_back_from_its_own_jobs_is_counted_on_before_free_slots() -> None:
    """Job 2 needs 3: two come back from job 1, so of the two free ones it must leave one to the other group."""
    held = hold(slots(5), {"h1:0-2": 1})
    giving_back = tuple(replace(slot, vacating=slot.held_by == 1 and slot.ref.index > 0) for slot in held)
    jobs = (running(job(1, group="a", most=1)), job(2, group="a", least=3, most=3), job(3, group="b"))
    owner = (group(name="a", quota=4), group(name="b"))
    cluster = SimulatedCluster(Snapshot(0.0, owner, giving_back, jobs))
    plan = lines(cluster.cycle())
    assert (plan[2].target, plan[2].claim) == (3, ())
    assert (plan[3].target, len(plan[3].claim)) == (1, 1)
    cluster.settle()
    assert len(cluster.held(2)) == 3


def test_a_job_that_leaves_a_draining_host_has_its_new_place_reserved() -> None:
    held = hold(slots(1, 1), {"h1:0": 1, "h2:0": 9})
    drained = tuple(replace(slot, claimable=slot.ref.host == "h2") for slot in held)
    cluster = SimulatedCluster(Snapshot(0.0, BOTH, drained, (running(job(1, group="a")), job(2, group="b"))))
    assert targets(cluster.cycle()) == {1: 1, 2: 0}
    cluster.settle()
    assert [ref.host for ref in cluster.held(1)] == ["h2"]


def test_who_can_go_elsewhere_leaves_the_shared_host_to_the_other() -> None:
    groups = (group(name="a", rg="all"), group(name="b", rg="gpu"))
    shared = tuple(
        replace(slot, resource_groups=("all", "gpu") if slot.ref.host == "h2" else ("all",)) for slot in slots(4, 4)
    )
    cluster = SimulatedCluster(Snapshot(0.0, groups, shared, (job(1, group="b"), job(2, group="a", most=6))))
    cluster.settle()
    assert (len(cluster.held(2)), len(cluster.held(1))) == (4, 4)
    assert {ref.host for ref in cluster.held(1)} == {"h2"}


def test_a_job_leaves_slots_that_its_resource_group_no_longer_offers() -> None:
    held = tuple(
        replace(slot, resource_groups=("rg",) if slot.ref.host == "h2" else ("other",))
        for slot in hold(slots(4, 4), {"h1:0-3": 1})
    )
    cluster = SimulatedCluster(Snapshot(0.0, (group(),), held, (running(job(1)),)))
    cluster.settle()
    assert {ref.host for ref in cluster.held(1)} == {"h2"}


def test_a_job_of_an_unknown_group_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="nowhere"):
        schedule(Snapshot(0.0, (group(),), slots(4), (job(1, group="nowhere"),)))
