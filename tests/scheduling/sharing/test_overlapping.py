"""Resource groups that share some of their GPUs: nobody counts on what it cannot get."""

import random
from dataclasses import replace

from scheduling.plan import Plan, PlanReason
from scheduling.schedule import schedule
from scheduling.snapshot import SlotRef, Snapshot
from tests.scheduling.checks import check_plan
from tests.scheduling.cluster import SimulatedCluster, group, hold, job, lines, running, slots, targets, text_for
from tests.scheduling.explain.test_reasons import check_reasons
from tests.scheduling.sharing.test_lending import Kind, cycle, workload
from tests.scheduling.test_corners import load

HISTORIES = 300
KIND = Kind(("r1", "r2"), fixed=True, cycles=3)


def test_a_target_counts_no_gpu_that_a_protected_fixed_job_keeps() -> None:
    lined = lines(schedule(load("E3")))
    assert (lined[3].target, lined[3].reason.params["missing"]) == (1, 0)


def test_a_target_counts_no_gpu_of_a_protected_job_whose_minimum_fits_nowhere_else() -> None:
    """T1 needs 3, of which one is on a host that drains: it stays on h1, which group b counted on."""
    offered = {"h1": ("r1", "r2"), "h2": ("r2",), "h3": ("r1",), "h4": ("r1",)}
    places = tuple(
        replace(slot, resource_groups=offered[slot.ref.host], claimable=slot.ref.host != "h4")
        for slot in slots(1, 1, 2, 1)
    )
    groups = (
        group("goodput", preemption=False, name="a", rg="r1", minimum_run_seconds=60, weight=3),
        group("priority", name="b", rg="r2", quota=2),
    )
    jobs = (
        replace(running(job(1, group="a", least=3)), started_at=-10.0),
        replace(running(job(2, group="a", most=1)), started_at=-100.0),
        job(3, group="b", most=2),
    )
    snapshot = Snapshot(0.0, groups, hold(places, {"h1:0": 1, "h3:0": 1, "h4:0": 1, "h3:1": 2}), jobs)
    plan = schedule(snapshot)
    check_plan(snapshot, plan)
    assert targets(plan) == {1: 3, 2: 1, 3: 1}


def test_a_job_leaves_a_host_to_another_groups_gang_for_a_slot_that_is_free() -> None:
    """T2 needs all of h1, of which T1 has one GPU. The only free one beside it is in the part of T2's group."""
    offered = {"h1": ("r1", "r2"), "h2": ("r1", "r2"), "h3": ("r2",)}
    places = tuple(replace(slot, resource_groups=offered[slot.ref.host]) for slot in slots(2, 1, 1))
    jobs = (
        running(job(1, group="a", most=1)),
        job(2, group="b", least=2, most=2, elastic=False, one_host=True),
        running(job(3, group="b", most=1, elastic=False)),
    )
    groups = (group(name="a", rg="r1"), group(name="b", rg="r2"))
    cluster = SimulatedCluster(Snapshot(0.0, groups, hold(places, {"h1:0": 1, "h3:0": 3}), jobs))
    cluster.settle()
    assert {ref.host for ref in cluster.held(2)} == {"h1"}
    assert cluster.held(1) == [SlotRef("h2", 0)]


def test_a_group_that_stops_a_job_to_move_it_counts_on_no_more_than_its_slots() -> None:
    """T2, whose minimum fits nowhere but on its draining host, leaves a GPU to T3 and is stopped: T5 may have the rest
    that T2 had in service, but not what T3 and T4 were given meanwhile."""
    offered = {"h1": ("r1", "r2"), "h2": ("r1",), "h3": ("r1", "r2")}
    places = tuple(
        replace(slot, resource_groups=offered[slot.ref.host], claimable=slot.ref.host != "h1")
        for slot in slots(8, 4, 8)
    )
    holders = {"h1:0-5": 2, "h1:6-7": 3, "h2:0": 2, "h3:0-1": 2, "h3:2-4": 3, "h3:5-6": 2, "h3:7": 3}
    groups = (
        group(name="a", rg="r1"),
        group("fifo", name="b", rg="r1", quota=4, weight=2),
        group("priority", name="c", rg="r2", weight=2),
    )
    jobs = (
        running(job(2, 2500, group="b", least=8, most=16)),
        running(job(3, group="c", least=4, most=6)),
        job(4, 7000, group="a", most=12),
        job(5, group="b", least=6, most=7),
    )
    check_plan(snapshot := Snapshot(1000.0, groups, hold(places, holders), jobs), schedule(snapshot))


OFFERS = {"h1": ("r1", "r2"), "h2": ("r2",), "h3": ("r1",)}
PLACES = tuple(replace(slot, resource_groups=OFFERS[slot.ref.host]) for slot in slots(2, 3, 1))


def moved(quota: int | None) -> Snapshot:
    """a, which owns this many, needs three for T3 and can use no more than h1 and h3; b's T4 is on h1:1."""
    groups = (group(name="a", rg="r1", quota=quota), group(name="b", rg="r2", preemption=False))
    jobs = (
        job(3, group="a", least=3, most=3, elastic=False),
        running(job(4, 2500, group="b", most=1, elastic=False)),
        job(5, 10000, group="b", least=3, most=3),
    )
    return Snapshot(0.0, groups, hold(PLACES, {"h1:1": 4}), jobs)


def test_who_waits_gets_nothing_that_a_job_which_moves_has_a_share_of() -> None:
    """T4 is to start again on h2, where T5 needs all three."""
    plan = lines(schedule(moved(quota=3)))
    assert (plan[4].preempt, plan[4].reason.code) == (True, PlanReason.RECLAIMED_BY_OWNER)
    assert (plan[3].target, plan[5].target) == (3, 0)
    assert text_for(plan[5]).startswith("Waits for 1 more GPU: it needs 3, and 1 of 3 ")


def test_nobody_is_moved_for_what_another_group_does_not_own() -> None:
    plan = lines(schedule(moved(quota=None)))
    assert [plan[number].target for number in (3, 4, 5)] == [0, 1, 3]


def test_every_missing_gpu_is_given_back_by_somebody() -> None:
    """Also where jobs of fixed size are too new to be stopped, and hosts drain."""
    for seed in range(HISTORIES):
        snapshot = history(seed)
        for _ in range(3):
            plan = schedule(snapshot)
            check_plan(snapshot, plan)
            check_reasons(snapshot, plan)
            assert not promised(plan), f"history {seed}"
            snapshot = cycle(snapshot)


def history(seed: int) -> Snapshot:
    """A workload in which some jobs have just begun and some slots take nothing new."""
    snapshot, dice = workload(seed, KIND), random.Random(-1 - seed)
    held = {slot.held_by for slot in snapshot.slots}
    return replace(
        snapshot,
        groups=tuple(replace(one, minimum_run_seconds=dice.choice([0, 60, 60])) for one in snapshot.groups),
        jobs=tuple(replace(one, started_at=90.0 if one.id in held else None) for one in snapshot.jobs),
        slots=tuple(replace(slot, claimable=dice.random() < 0.9) for slot in snapshot.slots),
    )


def promised(plan: Plan) -> list[int]:
    """Jobs with a target that nobody's slots are for."""
    figures = {line.job: line.reason.params for line in plan.jobs if "givers" in line.reason.params}
    return [number for number, params in figures.items() if params["missing"] > params["givers_slots"]]


def test_where_somebody_is_stopped_nobody_leaves_for_the_slots_of_that_one() -> None:
    """The quota stops T1. T2, whose minimum was raised above what it holds, could not move: it stays where it is."""
    groups = (group("priority", name="a", rg="r1", quota=1, borrows=False), group(name="b", rg="r2"))
    jobs = (
        running(job(1, 2500, group="a", least=2, most=2)),
        running(job(2, group="a", least=2, most=2)),
        job(3, group="b", most=1),
    )
    only, shared, other = (hold(slots(1), {"h1:0": 1}), slots(1), slots(1))
    there = (
        replace(only[0], resource_groups=("r1",)),
        replace(shared[0], ref=SlotRef("h2", 0), resource_groups=("r1", "r2"), held_by=2),
        replace(other[0], ref=SlotRef("h3", 0), resource_groups=("r2",)),
    )
    plan = lines(schedule(Snapshot(0.0, groups, there, jobs)))
    assert [number for number, line in plan.items() if line.preempt] == [1]
