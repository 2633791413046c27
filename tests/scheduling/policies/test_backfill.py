"""Reservations: who is first in line starts when it could, whoever trains on its slots until then."""

import random
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import pytest

from scheduling.forecast import Work, with_forecasts
from scheduling.plan import PlanReason
from scheduling.schedule import schedule
from scheduling.sharing.division import WAITED_SECONDS
from scheduling.snapshot import GroupView, JobView, SlotRef, Snapshot
from tests.scheduling.checks import check_plan
from tests.scheduling.cluster import Policy, SimulatedCluster, group, hold, job, lines, running, slots, text_for
from tests.scheduling.explain.test_reasons import check_reasons

NOW = 1_000.0


def fixed(number: int, count: int, **fields: Any) -> JobView:
    return job(number, least=count, most=count, elastic=False, **fields)


def half_taken(
    *waiting: JobView, policy: Policy = "fairshare", preemption: bool = True, **terms: Any
) -> SimulatedCluster:
    """8 GPUs: T1 has 4 of them for 100 s more, and T2 waits for all."""
    held = hold(slots(4, 4), {"h1:0-3": 1})
    first = running(fixed(1, 4, ends_at=NOW + 100))
    groups = (group(policy, preemption=preemption, **terms),)
    return SimulatedCluster(Snapshot(NOW, groups, held, (first, fixed(2, 8), *waiting)))


POLICIES: list[tuple[Policy, bool]] = [
    ("fairshare", True), ("fairshare", False), ("priority", True), ("priority", False), ("fifo", False),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "preemption"), POLICIES)
@pytest.mark.parametrize(("lasts", "starts"), [(100.0, True), (100.5, False), (None, False)])
def test_who_is_over_in_time_starts_before_the_first_in_line(
    policy: Policy, preemption: bool, lasts: float | None, starts: bool
) -> None:
    cluster = half_taken(fixed(3, 4, lasts=lasts), policy=policy, preemption=preemption)
    line = lines(cluster.cycle())[3]
    assert bool(line.claim) == starts
    if starts:
        assert (line.reason.code, line.reason.params["fills"]) == (PlanReason.BACKFILLED, "in_time")
        assert line.reason.params["before_whom"]["job"] == 2


@pytest.mark.parametrize(("policy", "preemption"), POLICIES)
def test_who_fits_beside_the_reservation_starts_however_long_it_takes(policy: Policy, preemption: bool) -> None:
    cluster = half_taken(fixed(3, 1), fixed(4, 1), policy=policy, preemption=preemption)
    cluster.change(2, min_slots=7, max_slots=7)
    plan = lines(cluster.cycle())
    assert (len(plan[3].claim), plan[3].reason.params["fills"]) == (1, "beside")
    assert not plan[4].claim


def test_the_reservation_says_which_slots_and_when() -> None:
    cluster = half_taken()
    cluster.change(2, min_slots=6, max_slots=6)
    line = lines(cluster.cycle())[2]
    assert line.reserved == tuple(
        SlotRef(host, n) for host, n in [("h1", 0), ("h1", 1), *(("h2", n) for n in range(4))]
    )
    params = line.reason.params
    assert (params["reserved"], params["reserved_at"], params["reserved_hosts"]) == (6, NOW + 100, ["h1", "h2"])
    assert text_for(line).endswith("6 GPUs on h1 and h2 are reserved for it, as soon as other trainings release them.")


def test_a_reservation_counts_what_lower_priorities_start_on_until_then() -> None:
    held = hold(slots(6), {"h1:0-2": 1})
    jobs = (running(fixed(1, 3, priority=9000, ends_at=NOW + 100)), fixed(2, 6), fixed(3, 2, priority=1000))
    plan = lines(schedule(Snapshot(NOW, (group("priority"),), held, jobs)))
    assert (len(plan[3].claim), len(plan[2].reserved), plan[2].reason.params["reserved_hosts"]) == (2, 6, ["h1"])


def test_a_reservation_counts_what_elastic_ones_have_beyond_their_least() -> None:
    held = hold(slots(4, 4), {"h1:0-2": 1, "h1:3": 3, "h2:0-2": 3})
    jobs = (running(fixed(1, 3, ends_at=NOW + 100)), fixed(2, 5), running(job(3, least=3, most=4)))
    plan = lines(schedule(Snapshot(NOW, (group("fairshare"),), held, jobs)))
    ending, free, beyond = [SlotRef("h1", n) for n in range(3)], SlotRef("h2", 3), SlotRef("h2", 2)
    assert plan[2].reserved == tuple(sorted([*ending, free, beyond]))


def test_nothing_is_said_of_a_reservation_that_nobody_knows_the_time_of() -> None:
    cluster = half_taken()
    cluster.change(1, ends_at=None)
    line = lines(cluster.cycle())[2]
    assert (line.reserved, "reserved" in line.reason.params) == ((), False)


def test_an_elastic_job_fills_the_hole_and_gives_way() -> None:
    cluster = half_taken(job(3))
    plan = lines(cluster.cycle())
    assert (len(plan[3].claim), plan[3].backfilled_for, plan[3].reason.params["fills"]) == (4, 2, "gives_way")
    cluster.settle()
    cluster.end(1)
    plan = lines(cluster.cycle())
    assert (plan[3].preempt, plan[3].reason.code) == (True, PlanReason.GAVE_WAY)
    assert "8" in text_for(plan[3])
    cluster.settle()
    assert len(cluster.held(2)) == 8
    assert lines(cluster.cycle())[3].target == 0


def test_who_gave_way_to_one_that_is_gone_is_not_stopped() -> None:
    cluster = half_taken(job(3))
    cluster.settle()
    cluster.end(2)
    cluster.submit(fixed(4, 8, submitted_at=0.0))
    cluster.end(1)
    cluster.settle()
    assert (len(cluster.held(3)), len(cluster.held(4))) == (8, 0)


@pytest.mark.parametrize(
    "terms", [{"preemption": False}, {"minimum_run_seconds": 60}], ids=["preemption is off", "minimum run time"]
)
def test_nobody_gives_way_where_its_group_stops_nobody(terms: dict[str, Any]) -> None:
    assert not lines(half_taken(job(3), **terms).cycle())[3].claim


def test_nobody_is_started_to_give_way_in_a_minute() -> None:
    cluster = half_taken(job(3))
    cluster.change(1, ends_at=NOW + 59)
    assert not lines(cluster.cycle())[3].claim


def test_who_gives_way_takes_only_what_others_have_beyond_their_minimum() -> None:
    """T1 may use all 8 GPUs. T2 cannot start while T1 keeps its minimum, so T3 trains until then."""
    everything = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1})
    jobs = running(job(1, least=6)), fixed(2, 3), job(3)
    cluster = SimulatedCluster(Snapshot(NOW, (group(),), everything, jobs))
    plan = lines(cluster.cycle())
    assert (plan[1].target, plan[3].target, plan[3].backfilled_for) == (6, 2, 2)
    cluster.settle()
    cluster.end(1)
    cluster.settle()
    assert (len(cluster.held(2)), len(cluster.held(3))) == (3, 5)


# --- while elastic trainings keep their minimum ----------------------------------------------------------------------

EVERYTHING = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1})


@pytest.mark.parametrize("policy", ["fairshare", "goodput"])
@pytest.mark.parametrize("minimum_run_seconds", [0, 60])
@pytest.mark.parametrize("elastic", [True, False])
def test_no_fixed_job_keeps_others_from_what_elastic_ones_have_beyond_their_minimum(
    policy: Policy, minimum_run_seconds: int, elastic: bool
) -> None:
    """T2 needs all GPUs, and T1 keeps at least one for as long as it runs, which nobody knows."""
    terms = group(policy, minimum_run_seconds=minimum_run_seconds)
    waiting = [job(n, most=8 if elastic else 1, elastic=elastic) for n in (3, 4)]
    cluster = SimulatedCluster(Snapshot(NOW, (terms,), EVERYTHING, (running(job(1)), fixed(2, 8), *waiting)))
    before = cluster.snapshot
    plan = cluster.cycle()
    check_plan(before, plan)
    check_reasons(before, plan)
    gives_way = elastic and not minimum_run_seconds
    started = lines(plan)
    assert all(started[number].target and started[number].backfilled_for == 2 for number in (3, 4))
    cluster.settle()
    assert all(cluster.held(number) for number in (1, 3, 4))
    assert text_for(lines(cluster.cycle())[2]).startswith("Waits for ")
    cluster.end(1)
    cluster.settle()
    # T3 and T4 give way, or T2 waits for their ends: no other job starts before it.
    assert bool(cluster.held(2)) == gives_way
    cluster.submit(job(5, most=1, elastic=False))
    cluster.settle()
    assert not cluster.held(5)
    for number in (3, 4):
        cluster.end(number)
    cluster.settle()
    assert len(cluster.held(2)) == 8


@pytest.mark.parametrize(
    ("policy", "preemption"), [("fifo", False), ("priority", False), ("priority", True), ("fairshare", False)]
)
@pytest.mark.parametrize("elastic", [True, False])
def test_no_fixed_job_keeps_others_from_free_gpus_beside_an_elastic_one(
    policy: Policy, preemption: bool, elastic: bool
) -> None:
    """T1 has its maximum of 4, and T2 needs all 8 GPUs. Whoever starts meanwhile is not followed by others for ever."""
    half = hold(slots(4, 4), {"h1:0-3": 1})
    waiting = [job(n, least=2, most=2, elastic=elastic) for n in (3, 4)]
    jobs = (running(job(1, most=4)), fixed(2, 8), *waiting)
    cluster = SimulatedCluster(Snapshot(NOW, (group(policy, preemption=preemption),), half, jobs))
    cluster.settle()
    assert all(len(cluster.held(number)) == 2 for number in (3, 4))
    assert lines(cluster.plans[0])[3].reason.params["fills"] == "meanwhile"
    cluster.end(1)
    cluster.submit(job(5, least=2, most=2, elastic=elastic))
    cluster.settle()
    assert not cluster.held(5)
    for number in (3, 4):
        cluster.end(number)
        cluster.settle()
    assert len(cluster.held(2)) == 8


def test_lower_priorities_have_queues_of_the_same_kind() -> None:
    """T3 waits for all 8 GPUs, of which T1 of a higher priority keeps 4, while T2 waits for its priority's."""
    half = hold(slots(4, 4), {"h1:0-3": 1})
    jobs = (
        running(job(1, 9000, most=4)), fixed(2, 8, priority=9000),
        fixed(3, 8, priority=1000), fixed(4, 2, priority=1000), job(5, 1000, least=2, most=2),
    )  # fmt: skip
    cluster = SimulatedCluster(Snapshot(NOW, (group("priority"),), half, jobs))
    cluster.settle()
    assert (len(cluster.held(4)), len(cluster.held(5))) == (2, 2)
    marks = {view.id: view.backfilled_for for view in cluster.snapshot.jobs}
    assert (marks[4], marks[5]) == (3, 3)


@pytest.mark.parametrize("elastic", [True, False])
def test_a_reservation_of_shared_slots_keeps_nobody_from_them_while_elastic_ones_keep_their_minimum(
    elastic: bool,
) -> None:
    """T1 needs 6 of 8 GPUs, more than its group's part, and T2 of the other group needs at least 3."""
    others = [job(n, least=1, most=1, elastic=elastic, group="b") for n in (3, 4)]
    cluster = beside(running(job(2, least=3, group="b")), *others, holders={"h1:0-3": 2, "h2:0-3": 2})
    cluster.settle()
    assert all(cluster.held(number) for number in (3, 4))
    assert not cluster.held(1)
    cluster.end(2)
    cluster.settle()
    assert len(cluster.held(1)) == 6


# --- whatever comes --------------------------------------------------------------------------------------------------


@dataclass
class Played:
    #: Job -> when it was first told from when at the latest its reservation is, and that moment.
    promised: dict[int, float]
    started: dict[int, float]
    stopped: set[int]


def played(seed: int, policy: Policy, *, preemption: bool, count: int = 14) -> Played:
    """Jobs of all sizes come to 8 GPUs; each takes exactly as long as it says, however many it has."""
    dice = random.Random(seed)
    coming = sorted((_job(dice, number) for number in range(1, count + 1)), key=lambda view: view.submitted_at)
    cluster = SimulatedCluster(Snapshot(0.0, (group(policy, preemption=preemption),), slots(4, 4)))
    found = Played({}, {}, set())
    for now in range(2_000):
        cluster.snapshot = replace(cluster.snapshot, at=float(now))
        for view in cluster.snapshot.jobs:
            if view.ends_at is not None and view.ends_at <= now:
                cluster.end(view.id)
        while coming and coming[0].submitted_at <= now:
            cluster.submit(coming.pop(0))
        for _ in range(3):  # released slots are free within the same second
            before = cluster.snapshot
            check_plan(before, plan := cluster.cycle())
            for line in plan.jobs:
                if line.reserved:
                    found.promised.setdefault(line.job, line.reason.params["reserved_at"])
                if line.claim:
                    found.started.setdefault(line.job, now)
                if line.preempt:
                    found.stopped.add(line.job)
            if cluster.snapshot == before:
                break
        if not coming and not cluster.snapshot.jobs:
            return found
    raise AssertionError(f"jobs wait for ever: {cluster.snapshot.jobs}")


def _job(dice: random.Random, number: int) -> JobView:
    size, elastic = dice.choice((1, 1, 2, 3, 5, 8)), dice.random() < 0.3
    most = min(8, size + dice.randint(0, 4)) if elastic else size
    at = float(dice.randint(0, 100))
    return job(number, least=size, most=most, elastic=elastic, submitted_at=at, lasts=float(dice.randint(1, 60)))


@pytest.mark.parametrize(("policy", "preemption"), POLICIES)
def test_no_reservation_is_delayed_and_nobody_starves(policy: Policy, preemption: bool) -> None:
    told = 0
    for seed in range(12):
        seen = played(seed, policy, preemption=preemption)
        told += len(seen.promised)
        late = {job: (at, seen.started[job]) for job, at in seen.promised.items() if seen.started[job] > at}
        assert not late, (seed, late)
    assert told > 12


# --- between groups --------------------------------------------------------------------------------------------------

TWO = group(name="a"), group(name="b")
LONG_AGO = NOW - WAITED_SECONDS


def beside(*jobs: JobView, holders: dict[str, int], groups: tuple[GroupView, ...] = TWO) -> SimulatedCluster:
    """8 GPUs for groups a and b, of 4 each by weight; job 1 of a needs 6 and has waited."""
    first = fixed(1, 6, group="a", submitted_at=LONG_AGO)
    return SimulatedCluster(Snapshot(NOW, groups, hold(slots(4, 4), holders), (first, *jobs)))


def test_more_than_its_groups_part_starts_where_elastic_ones_can_shrink() -> None:
    cluster = beside(running(job(2, group="b")), holders={"h1:0-3": 2, "h2:0-3": 2})
    cluster.settle()
    assert (len(cluster.held(1)), len(cluster.held(2))) == (6, 2)
    [view] = [view for view in cluster.snapshot.jobs if view.id == 1]
    assert view.over_quota
    started = next(line for plan in cluster.plans for line in plan.jobs if line.over_quota)
    assert (started.job, started.reason.params["over_quota"]) == (1, 4)


def test_it_waits_for_five_minutes_first() -> None:
    cluster = beside(running(job(2, group="b")), holders={"h1:0-3": 2, "h2:0-3": 2})
    cluster.change(1, submitted_at=LONG_AGO + 1)
    cluster.settle()
    assert not cluster.held(1)


def test_what_comes_free_is_kept_for_it_and_nobody_is_stopped() -> None:
    ones = [running(fixed(number, 1, group="b", submitted_at=1.0)) for number in range(2, 8)]
    holders = {f"h{1 + (number - 2) // 4}:{(number - 2) % 4}": number for number in range(2, 8)}
    later = [fixed(number, 1, group="b") for number in range(8, 12)]
    cluster = beside(*ones, *later, holders=holders)
    for view in later:
        cluster.change(view.id, submitted_at=NOW)
    cluster.settle()
    assert [len(cluster.held(number)) for number in (1, 8, 9)] == [0, 0, 0]
    line = lines(cluster.cycle())
    assert line[8].reason.params == {"message": "held_back_for", "min_slots": 1, "reserved": 6, "first": {
        "job": 1, "name": "T1"}}  # fmt: skip
    assert line[1].reason.params["reserved"] == 6
    for number in (2, 3, 4, 5):
        assert not cluster.held(1)
        cluster.end(number)
        cluster.settle()
    assert len(cluster.held(1)) == 6
    assert not any(line.preempt for plan in cluster.plans for line in plan.jobs)


def test_who_is_over_in_time_or_came_before_starts_before_it() -> None:
    held = [running(fixed(2, 4, group="b", ends_at=NOW + 100))]
    short = fixed(3, 1, group="b", submitted_at=NOW, lasts=100.0)
    long = fixed(4, 1, group="b", submitted_at=NOW, lasts=101.0)
    third = fixed(5, 2, group="b", submitted_at=NOW, lasts=500.0)
    cluster = beside(*held, short, third, long, holders={"h1:0-3": 2}, groups=(TWO[0], group(name="b", weight=2)))
    cluster.change(1, min_slots=5, max_slots=5)
    cluster.settle()
    line = lines(cluster.cycle())
    assert line[1].reason.params["reserved_at"] == NOW + 100
    assert [len(cluster.held(number)) for number in (1, 3)] == [0, 1]
    late = sum(len(cluster.held(number)) for number in (4, 5))
    assert late <= 3, "so many are left beside its 5"


def test_what_others_own_by_quota_is_never_kept_for_it() -> None:
    owner = group(name="b", quota=4)
    cluster = beside(running(job(2, group="b")), holders={"h1:0-3": 2, "h2:0-3": 2}, groups=(TWO[0], owner))
    cluster.settle()
    assert (len(cluster.held(1)), len(cluster.held(2))) == (0, 8)


def test_more_than_twice_its_groups_part_is_not_kept_for_it() -> None:
    groups = group(name="a"), group(name="b", weight=2)
    cluster = beside(running(job(2, group="b")), holders={"h1:0-3": 2, "h2:0-3": 2}, groups=groups)
    cluster.settle()
    assert not cluster.held(1)


def test_who_was_started_so_gives_it_back_to_a_quota() -> None:
    cluster = beside(running(job(2, group="b")), holders={"h1:0-3": 2, "h2:0-3": 2})
    cluster.settle()
    cluster.snapshot = replace(cluster.snapshot, groups=(TWO[0], group(name="b", quota=4)))
    cluster.settle()
    assert (len(cluster.held(1)), len(cluster.held(2))) == (0, 8)


def test_who_is_behind_one_that_it_holds_back_uses_what_was_lent_for_that_reason() -> None:
    """T3 cannot start on a's last GPU, which T5 of c borrows meanwhile. T1's reservation holds T3 back and lets T8
    start, which is over in time: the GPU is for it, not for both."""
    groups = group(name="a", rg="r1", preemption=False), group("fifo", name="c", rg="r3", preemption=False)
    offers = {"h1": ("r1", "r3"), "h2": ("r3",)}
    there = tuple(replace(slot, resource_groups=offers[slot.ref.host]) for slot in slots(4, 4))
    jobs = (
        fixed(1, 7, group="c", submitted_at=LONG_AGO),
        fixed(3, 4, group="a", submitted_at=LONG_AGO + 1),
        running(job(5, group="c", submitted_at=LONG_AGO + 2, ends_at=NOW + 900)),
        fixed(6, 6, group="c", submitted_at=LONG_AGO + 3),
        running(job(7, group="a", most=3, submitted_at=LONG_AGO + 4)),
        job(8, group="a", most=3, submitted_at=LONG_AGO + 5, lasts=500.0),
    )
    snapshot = Snapshot(NOW, groups, hold(there, {"h1:0-2": 7, "h2:0-2": 5}), jobs)
    plan = schedule(snapshot)
    check_plan(snapshot, plan)
    assert {number: line.target for number, line in lines(plan).items()} == {1: 0, 3: 0, 5: 4, 6: 0, 7: 3, 8: 1}


@pytest.mark.parametrize("seed", range(40))
def test_everybody_of_two_groups_comes_to_its_end(seed: int) -> None:
    """Gangs above their group's part among others, some of which nobody knows the end of."""
    dice = random.Random(seed)
    views = []
    for number in range(1, 9):
        size = dice.choice((1, 1, 2, 5, 6, 8))
        elastic = dice.random() < 0.3
        lasts = float(dice.randint(100, 900))
        views.append(
            job(number, least=1 if elastic else size, most=size, elastic=elastic, group=dice.choice("ab"), lasts=lasts,
                submitted_at=float(dice.randint(0, 1000)))
        )  # fmt: skip
    durations = {view.id: view.lasts for view in views}
    waiting = sorted((replace(v, lasts=v.lasts if dice.random() < 0.5 else None) for v in views), key=_SUBMITTED)
    cluster = SimulatedCluster(Snapshot(0.0, TWO, slots(4, 4)))
    ends = dict[int, float]()
    for now in range(0, 20_000, 20):
        cluster.snapshot = replace(cluster.snapshot, at=float(now))
        for number in [number for number, end in ends.items() if end <= now]:
            cluster.end(number)
            del ends[number]
        while waiting and waiting[0].submitted_at <= now:
            cluster.submit(waiting.pop(0))
        for _ in range(3):
            check_plan(cluster.snapshot, plan := cluster.cycle())
            for line in plan.jobs:
                assert (
                    not line.preempt
                    or line.reason.code != PlanReason.RECLAIMED_BY_OWNER
                    or not _is_above(cluster, line.job)
                )
                if line.preempt:
                    ends.pop(line.job, None)
                elif line.claim and line.job not in ends:
                    ends[line.job] = now + (durations[line.job] or 0.0)
        if not waiting and not cluster.snapshot.jobs:
            return
    raise AssertionError(f"jobs wait for ever: {cluster.snapshot.jobs}")


_SUBMITTED = attrgetter("submitted_at")


def _is_above(cluster: SimulatedCluster, number: int) -> bool:
    return any(view.id == number and view.over_quota for view in cluster.snapshot.jobs)


# --- forecasts -------------------------------------------------------------------------------------------------------


def test_forecasts_count_with_their_error_where_limits_are_later() -> None:
    """At the most 80 s by 4 GPUs; with a margin and in whole minutes 120 s, from the minute after 1000 s on."""
    work = Work(gpu_seconds=(100.0, 320.0), seconds=(10.0, 40.0))
    waiting, limited = fixed(2, 4), fixed(3, 4, lasts=60.0)
    held = replace(running(fixed(1, 4)), ends_at=NOW + 5_000)
    seen = Snapshot(NOW, (group(),), slots(4, 4), (held, waiting, limited, fixed(4, 4)))
    found = with_forecasts(seen, dict.fromkeys((1, 2, 3), work), at=NOW).jobs
    assert [job.lasts for job in found] == [None, 120.0, 60.0, None]
    assert [job.ends_at for job in found] == [1_140.0, None, None, None]
