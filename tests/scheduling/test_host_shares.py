"""Cores and memory as dimensions of hosts: what is promised, who starts where, and that a cluster comes to rest."""

import random
import sys
import traceback
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import pytest
from tidepool.goodput.model import Bounds, ThroughputParameters

from scheduling.capacity import HostShape, wanted_hosts
from scheduling.host_shares import Counting, HostKinds, counting_on, expand, slots_for
from scheduling.plan import Plan
from scheduling.preview import preview, with_changes, with_job
from scheduling.schedule import run_cycle, schedule
from scheduling.snapshot import JobView, ProfileView, Share, Snapshot
from tests.scheduling.checks import check_no_slot_twice, held, in_order, is_limited, job_of, offered
from tests.scheduling.cluster import (
    SimulatedCluster,
    group,
    hold,
    job,
    lines,
    of_kinds,
    running,
    slots,
    targets,
    text_for,
)
from tests.scheduling.oracle.clusters import PlayedCluster, random_cluster
from tests.scheduling.oracle.rules import CYCLES_TO_REST

GIB = 1024**3
#: Cores and memory of a slot.
SHARE = Share(8, 32 * GIB)


def cluster(*jobs: JobView, sizes: tuple[int, ...] = (8,), holders: dict[str, int] | None = None) -> Snapshot:
    """Return hosts h1, h2 ... with so many slots of 8 cores and 32 GiB each."""
    places = hold(slots(*sizes), holders or {})
    return Snapshot(1000.0, (group(),), places, jobs, shares={slot.ref.host: SHARE for slot in places})


def wish(cores: float = 0, gib: float = 0) -> Share:
    return Share(cores, int(gib * GIB))


def fixed(number: int, gpus: int, **fields: Any) -> JobView:
    return job(number, least=gpus, most=gpus, elastic=False, **fields)


def played(snapshot: Snapshot, cycles: int = CYCLES_TO_REST) -> tuple[Snapshot, Plan]:
    there = SimulatedCluster(snapshot)
    for _ in range(cycles):
        there.cycle()
        check(there.plans[-1], there.snapshot)
    return there.snapshot, there.plans[-1]


def check(plan: Plan, snapshot: Snapshot) -> None:
    """Check that no host has promised more than it has, with what holders of slots in service ask for."""
    check_no_slot_twice(plan)
    wishes = {one.id: one.wish for one in snapshot.jobs} | dict(snapshot.ending)
    sizes = Counter(slot.ref.host for slot in snapshot.slots)
    cores, memory = Counter[str](), Counter[str]()
    for slot in snapshot.slots:
        if slot.held_by is not None:
            host, asked = slot.ref.host, wishes.get(slot.held_by) or Share(0, 0)
            share = snapshot.shares.get(host, Share(0, 0))
            cores[host] += max(asked.cores, share.cores)  # type: ignore[assignment]
            memory[host] += max(asked.memory, share.memory)
    for host, share in snapshot.shares.items():
        assert cores[host] <= share.cores * sizes[host] + 1e-6, host
        assert memory[host] <= share.memory * sizes[host], host


# --- counting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "share", "count"),
    [
        (wish(8), SHARE, 1),
        (wish(1), SHARE, 1),
        (wish(9), SHARE, 2),
        (wish(16), SHARE, 2),
        (wish(0, 65), SHARE, 3),
        (wish(16, 128), SHARE, 4),
        (wish(0.3), Share(0.1, 1), 3),
        (wish(16), None, 1),
        (wish(16), Share(0, GIB), float("inf")),
    ],
)
def test_a_gpu_counts_as_the_slots_that_stand_for_its_wish(asked: Share, share: Share | None, count: float) -> None:
    assert slots_for(asked, share) == count


def test_hosts_with_larger_shares_are_preferred_if_they_are_enough() -> None:
    shares, sizes = {"rich": Share(16, GIB), "poor": Share(4, GIB)}, {"rich": 4, "poor": 8}
    hosts = HostKinds(sizes, shares)
    assert counting_on(wish(16), 2, hosts) == Counting(1, frozenset({"poor"}))
    assert counting_on(wish(16), 5, hosts) == Counting(1, frozenset({"poor"})), "nothing gives five"
    assert counting_on(wish(8), 5, HostKinds({"rich": 4, "poor": 16}, shares)) == Counting(2)
    assert counting_on(wish(64), 1, hosts) == Counting(4, frozenset({"poor"}))
    assert counting_on(wish(8), 1, hosts, held_on={"poor"}).per_gpu == 2, "it trains there"


# --- placement --------------------------------------------------------------------------------------------------------


def test_a_job_that_asks_for_no_more_than_a_share_changes_nothing() -> None:
    jobs = (job(1), fixed(2, 3))
    plain = schedule(cluster(*jobs, sizes=(4, 4)))
    assert schedule(cluster(*(replace(one, wish=wish(8, 32)) for one in jobs), sizes=(4, 4))) == plain


def test_twice_the_share_takes_twice_the_slots() -> None:
    snapshot, plan = played(cluster(job(1, wish=wish(16)), sizes=(8,)))
    assert targets(plan) == {1: 4}
    assert sum(slot.held_by == 1 for slot in snapshot.slots) == 4
    text = text_for(lines(plan)[1])
    assert "Each of its 4 GPUs counts as 2, because it needs 16 cores with each, more than a GPU's share" in text


def test_neighbours_divide_what_is_left() -> None:
    _, plan = played(cluster(job(1, wish=wish(16)), job(2)))
    assert targets(plan) == {1: 2, 2: 4}


def test_memory_counts_as_cores_do() -> None:
    _, plan = played(cluster(fixed(1, 2, wish=wish(0, 96)), fixed(2, 2)))
    assert targets(plan) == {1: 2, 2: 2}
    assert "needs 96 GiB of memory with each" in text_for(lines(plan)[1])


def test_slots_that_make_no_gpu_go_to_others() -> None:
    _, plan = played(cluster(job(1, wish=wish(24)), job(2), sizes=(8,)))
    assert targets(plan) == {1: 1, 2: 5}


def test_a_gpu_and_its_cores_are_on_one_host() -> None:
    _, plan = played(cluster(job(1, wish=wish(32)), job(2), sizes=(2, 2)))
    assert targets(plan)[1] == 0
    assert targets(plan)[2] == 4
    text = text_for(lines(plan)[1])
    assert text.startswith("Needs 32 cores per GPU: no host of the group has that many free beside its GPUs")


def test_elastic_neighbours_leave_a_host_for_a_job_that_needs_its_cores() -> None:
    """Four hosts with one free slot each: T3 needs three slots of one."""
    jobs = (running(job(1, least=4, most=4)), running(job(2, least=2, most=2)), fixed(3, 1, wish=wish(24)))
    holders = {"h1:0-1": 1, "h2:0-1": 1, "h3:0-1": 2}
    snapshot, plan = played(cluster(*jobs, sizes=(3, 3, 3), holders=holders))
    assert targets(plan) == {1: 4, 2: 2, 3: 1}
    assert sum(slot.held_by == 3 for slot in snapshot.slots) == 1


def test_an_elastic_job_starts_with_its_minimum_where_a_host_has_room_and_grows() -> None:
    jobs = (running(fixed(1, 3)), job(2, wish=wish(16), least=1, most=4))
    _, plan = played(cluster(*jobs, sizes=(4, 4), holders={"h1:0-2": 1}))
    assert targets(plan) == {1: 3, 2: 2}


def test_a_running_job_keeps_its_cores_when_it_shrinks() -> None:
    jobs = (running(job(1, wish=wish(16), least=1, most=4)), fixed(2, 4))
    snapshot, plan = played(cluster(*jobs, holders={"h1:0-3": 1}))
    assert targets(plan) == {1: 2, 2: 4}
    assert sum(slot.held_by is None for slot in snapshot.slots) == 2


def test_a_job_that_ends_keeps_its_cores_until_its_processes_are_gone() -> None:
    holding = cluster(job(2), holders={"h1:0-1": 1})
    holding = replace(holding, ending={1: wish(24)})
    [line] = schedule(holding).jobs
    assert (line.target, len(line.claim)) == (8, 2)


def test_a_fixed_job_that_runs_keeps_what_it_has_though_its_host_reserves_more() -> None:
    there = cluster(running(fixed(1, 4, wish=wish(16))), job(2), holders={"h1:0-3": 1})
    there = replace(there, shares={"h1": Share(2, 32 * GIB)})
    plan = schedule(there)
    assert (lines(plan)[1].target, lines(plan)[1].vacate) == (4, ())
    assert not lines(plan)[2].claim


def test_a_sick_gpu_still_gives_its_cores() -> None:
    there = cluster(fixed(1, 1, wish=wish(16)), job(2, most=4), sizes=(4,))
    sick = tuple(replace(slot, claimable=slot.ref.index != 3) for slot in there.slots)
    _, plan = played(replace(there, slots=sick))
    assert targets(plan) == {1: 1, 2: 2}


def test_a_fair_share_counts_all_slots() -> None:
    _, plan = played(cluster(job(1, wish=wish(16), most=16), job(2, most=16), sizes=(8, 8)))
    assert targets(plan) == {1: 4, 2: 8}


def test_a_quota_counts_all_slots() -> None:
    there = replace(cluster(job(1, wish=wish(16))), groups=(group(quota=4, borrows=False),))
    assert targets(schedule(there)) == {1: 2}


def test_the_first_that_waits_is_not_overtaken_by_jobs_that_would_delay_it() -> None:
    """T2 needs all of the host once T1 has ended; T3 would take a slot for an unknown time."""
    jobs = (running(fixed(1, 4, ends_at=1060.0)), fixed(2, 4, wish=wish(16)), fixed(3, 1), fixed(4, 1, lasts=30.0))
    plan = schedule(cluster(*jobs, holders={"h1:0-3": 1}))
    assert targets(plan) == {1: 4, 2: 0, 3: 0, 4: 1}


def moves(snapshot: Snapshot, cycles: int) -> list[bool]:
    """Return for each of so many cycles whether any slot changes its holder."""
    there = SimulatedCluster(snapshot)
    plans = (there.cycle() for _ in range(cycles))
    return [any(line.claim or line.vacate for line in plan.jobs) for plan in plans]


def test_what_one_job_cannot_use_of_its_part_makes_no_other_give_and_take() -> None:
    """T12 was given three GPUs of two slots each once T14 was limited to what fits. It can use two, and T14 gave a GPU
    back and got it again, for ever."""
    speeds = ThroughputParameters(0.03, 0.006, 0.2, 0.02, 0.4, 0.02, 1.0)
    profile = ProfileView(bounds=Bounds(64), parameters={"": speeds}, largest_ranks=2)
    jobs = (
        running(job(9, most=2, elastic=False, group="d")),
        running(job(12, most=4, group="c", wish=wish(20))),
        running(fixed(13, 1, group="c")),
        running(job(14, most=12, group="d", profile=profile, wish=wish(4))),
    )
    places = hold(slots(8, 2), {"h1:1": 12, "h1:2": 13, "h1:5": 14, "h1:6": 9, "h1:7": 14, "h2:0": 9})
    groups = (group(name="c", weight=10), group("goodput", name="d", quota=3, aim="even"))
    shares = {"h1": Share(16, 32 * GIB), "h2": Share(2, 64 * GIB)}
    assert not any(moves(Snapshot(1000.0, groups, places, jobs, shares=shares), CYCLES_TO_REST)[8:])


def test_nobody_stops_for_slots_of_a_kind_that_another_group_is_not_allotted() -> None:
    """Group e is allotted five Ampere and one Turing, which make two GPUs for T10. T8 stopped for it again and again:
    what it would leave makes three."""
    jobs = (
        running(fixed(7, 1, group="a", wish=wish(20))),
        fixed(8, 8, group="d"),
        fixed(10, 3, group="e", wish=wish(16)),
    )
    groups = (group(name="a"), group(name="d", gpu_weights=(("Ampere", 1.0),)), group(name="e", weight=2))
    places = hold(of_kinds((8, "Ampere"), (4, "Turing")), {"h1:0": 7})
    snapshot = Snapshot(1000.0, groups, places, jobs, shares={"h1": SHARE, "h2": SHARE})
    assert not any(moves(snapshot, CYCLES_TO_REST)[4:])


def test_a_preview_tells_what_a_wish_costs() -> None:
    without = cluster(running(job(1, most=8)), holders={"h1:0-7": 1})
    found = preview(without, with_job(without, job(2, least=2, most=2, elastic=False, wish=wish(16))), 2)
    assert found.line.target == 2
    assert [(one.job, one.before, one.after) for one in found.others] == [(1, 8, 4)]
    assert targets(schedule(with_changes(without, 1, wish=wish(32))))[1] == 2


def test_wanted_hosts_have_the_cores_of_those_that_are_there() -> None:
    there = cluster(fixed(1, 2, wish=wish(32)), sizes=(4,))
    found = wanted_hosts(there, HostShape(("rg",), "", 4), most=3, worth=1.0)
    assert (found.waiting_hosts, found.waiting) == (1, (1,))


# --- random clusters --------------------------------------------------------------------------------------------------


def with_wishes(there: PlayedCluster, dice: random.Random) -> None:
    """Give every new job a wish, often none, and every host a share."""
    shares = there.snapshot.shares or {
        host: Share(dice.choice((2, 8, 8, 16)), dice.choice((8, 32, 64)) * GIB)
        for host in sorted({slot.ref.host for slot in there.snapshot.slots})
    }
    wishes = (None, None, wish(4), wish(16), wish(20), wish(0, 64), wish(8, 100))
    jobs = tuple(
        replace(one, wish=dice.choice(wishes)) if one.wish is None and one.state == "PENDING" and one.id % 2 else one
        for one in there.snapshot.jobs
    )
    there.snapshot = replace(there.snapshot, shares=shares, jobs=jobs)


def check_turn(seen: Snapshot, plan: Plan) -> None:
    """Check limits, and that the plan claims nothing twice and nothing that is taken."""
    check_no_slot_twice(plan)
    for line in plan.jobs:
        view = job_of(seen, line)
        mine = held(seen, view)
        assert set(line.slots) == (mine - set(line.vacate)) | set(line.claim)
        assert len(line.slots) <= line.target
        assert line.target <= view.max_slots or line.target == len(mine)
        if view.state == "PENDING" and line.claim:
            assert len(line.claim) >= view.min_slots
        if mine and not view.elastic:
            assert line.preempt or (set(line.slots) == mine)
        if mine and view.elastic and not line.preempt:
            assert len(line.slots) >= min(view.min_slots, len(mine))
        assert text_for(line)


def check_promises(before: Snapshot, seen: Snapshot) -> None:
    """Check that a host that had promised no more than it has does not promise more after a cycle."""
    was, now = promised(before), promised(seen)
    for host, share in seen.shares.items():
        there = sum(slot.ref.host == host for slot in seen.slots)
        for kind in (0, 1):
            limit = max(share[kind] * there, was[host][kind])
            assert now[host][kind] <= limit + 1e-6, (host, now[host], share)


def promised(seen: Snapshot) -> dict[str, tuple[float, float]]:
    """Return host -> cores and memory of all slots that are held."""
    wishes = {one.id: one.wish for one in seen.jobs}
    found: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for slot in seen.slots:
        if slot.held_by is not None:
            share, (cores, memory) = seen.shares[slot.ref.host], found[slot.ref.host]
            asked = wishes.get(slot.held_by) or share
            found[slot.ref.host] = cores + max(asked.cores, share.cores), memory + max(asked.memory, share.memory)
    return found


def play(seed: int, turns: int = 30) -> None:
    there, dice = random_cluster(seed), random.Random(f"wishes {seed}")
    for turn in range(turns):
        for _ in range(there.dice.choice((1, 1, 2, there.most_jobs // 3))):
            there.happens()
        with_wishes(there, dice)
        before = there.snapshot
        check_turn(*there.cycle(seconds=1.0))
        check_promises(before, there.snapshot)
        if turn % 5 == 4:
            rest(there)


def rest(there: PlayedCluster) -> None:
    """Check that the cluster comes to rest, and that then nobody could start on a host that is free for him alone."""
    quiet = 0
    for _ in range(CYCLES_TO_REST):
        before = there.snapshot
        seen, plan = there.still_cycle(4.0)
        check_turn(seen, plan)
        check_promises(before, there.snapshot)
        moves = [line.job for line in plan.jobs if line.claim or line.vacate]
        quiet = 0 if moves or any(slot.vacating for slot in seen.slots) else quiet + 1
        if quiet >= 4:
            break
    assert quiet, f"no rest within {CYCLES_TO_REST} cycles: {moves} move"
    assert not (overlooked := first_beside_room(seen, plan)), f"T{overlooked} waits beside a host with room"


def first_beside_room(seen: Snapshot, plan: Plan) -> int | None:
    """Return the first job in the queue of the only group if it waits although one host has all that it needs free."""
    [alone, *others] = seen.groups
    if others or is_limited(alone) or not alone.started or len({slot.device for slot in seen.slots}) > 1:
        return None
    there = expand(seen)
    counted = seen if there is None else there.snapshot
    got = {line.job for line in plan.jobs if line.slots}
    for one in in_order(counted, alone):
        if one.id in got or one.bundle is not None:
            continue
        free = Counter(slot.ref.host for slot in counted.slots if slot.held_by is None and offered(slot, alone))
        least = one.min_slots if one.elastic else one.max_slots
        return one.id if any(free[host] >= least for host in free.keys() - one.unfit) else None
    return None


@pytest.mark.parametrize("seed", range(20))
def test_random_clusters_promise_nothing_twice_and_come_to_rest(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("seed", range(20))
def test_shares_are_fair_in_all_that_gpus_count_as(seed: int) -> None:
    """At rest on one host, no job could take a GPU with its cores from another one and still have no more than it."""
    dice = random.Random(seed)
    wishes = (None, wish(8), wish(16), wish(24), wish(0, 128), wish(8, 64))
    jobs = [
        job(number, wish=dice.choice(wishes), most=dice.choice((2, 8, 32))) for number in range(1, dice.randint(3, 7))
    ]
    has = targets(played(cluster(*jobs, sizes=(32,)))[1])
    per_gpu = {one.id: int(slots_for(one.wish or SHARE, SHARE)) for one in jobs}
    counted = {one.id: has[one.id] * per_gpu[one.id] for one in jobs}
    free = 32 - sum(counted.values())
    for one in jobs:
        if has[one.id] == one.max_slots:
            continue
        assert free < per_gpu[one.id], f"T{one.id} could grow into {free} free slots: {counted}"
        for other in jobs:
            gives = has[other.id] > other.min_slots and other.id != one.id
            lower, higher = counted[one.id] + per_gpu[one.id], counted[other.id] - per_gpu[other.id]
            assert not (gives and per_gpu[other.id] + free >= per_gpu[one.id] and lower <= higher), (
                one.id,
                other.id,
                counted,
            )


@pytest.mark.parametrize("seed", range(20))
def test_nobody_starves(seed: int) -> None:
    """Every job that its host could hold alone starts once those before it have ended, whatever comes after it."""
    dice = random.Random(seed)
    there = SimulatedCluster(cluster(sizes=dice.choice(((8,), (4, 4), (2, 4, 8)))))
    there.submit(fixed(1, 1, wish=wish(dice.choice((16, 24, 32)))) if dice.random() < 0.5 else job(1, wish=wish(32)))
    for number in range(2, 40):
        there.submit(fixed(number, dice.choice((1, 1, 2)), lasts=float(dice.randint(20, 60))))
        there.cycle()
        if any(slot.held_by == 1 for slot in there.snapshot.slots):
            return
        if number > 6:
            there.end(number - 5)
    raise AssertionError("T1 waits for good")


def test_a_cycle_without_wishes_is_the_one_without_shares() -> None:
    there = cluster(job(1), job(2))
    assert run_cycle(there).expansion is None
    assert schedule(there) == schedule(replace(there, shares={}))


def main() -> None:
    """Play many clusters: python -m tests.scheduling.test_host_shares [FIRST] [COUNT]."""
    first, count = (int(text) for text in sys.argv[1:3])
    bad = 0
    for seed in range(first, first + count):
        try:
            play(seed)
        except Exception as error:  # every one is counted, and named
            bad += 1
            frames = [f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)]
            print(seed, " ".join(frames[-3:]), type(error).__name__, str(error)[:200].replace("\n", " "), flush=True)
    print(f"{count} clusters, {bad} bad")


if __name__ == "__main__":
    import os

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    main()
