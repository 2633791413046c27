"""A compact set of cases in each of which the scheduler has one right answer."""

from collections.abc import Iterator
from dataclasses import replace

from scheduling.plan import PlanReason
from scheduling.schedule import schedule
from scheduling.snapshot import GroupView, JobView, SlotView, Snapshot
from tests.scheduling.checks import check_plan
from tests.scheduling.cluster import Policy, SimulatedCluster, group, hold, job, lines, running, slots
from tests.scheduling.explain.test_reasons import check_reasons


def test_plans_and_reasons_are_valid_for_four_cycles() -> None:
    for snapshot in _telling_snapshots():
        cluster = SimulatedCluster(snapshot)
        for _ in range(4):
            before = cluster.snapshot
            plan = cluster.cycle()
            check_plan(before, plan)
            check_reasons(before, plan)


def _telling_snapshots() -> Iterator[Snapshot]:
    full = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1})
    halves = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 2})
    drained = tuple(replace(slot, claimable=slot.ref.host == "h2") for slot in full)
    closing = tuple(replace(slot, claimable=slot.ref.host == "h2") for slot in slots(4, 4))
    policies: tuple[Policy, ...] = ("fairshare", "priority", "fifo")
    for policy in policies:
        for preemption in (True, False):
            groups = (group(policy, preemption=preemption),)
            yield Snapshot(0.0, groups, full, (running(job(1, owner=1)), job(2, 10000, owner=2), job(3, owner=1)))
            yield Snapshot(0.0, groups, halves, (running(job(1)), running(job(2, 10000))))
            yield Snapshot(0.0, groups, halves, (running(job(1)), running(job(2, 9000)), job(3, 7000, least=6)))
            yield Snapshot(0.0, groups, drained, (running(job(1, least=5)), job(2)))
            yield Snapshot(0.0, groups, drained, (running(job(1, most=8, elastic=False)), job(2)))
            yield Snapshot(0.0, groups, closing, (job(1), job(2)))
            yield Snapshot(0.0, groups, full, (job(2, least=3), job(3)))
            yield Snapshot(0.0, groups, slots(4, 4), (job(1, most=3), job(2, 9000, most=3), job(3)))
    other = tuple(
        replace(slot, resource_groups=("rg", "x") if slot.ref.host == "h2" else ("x",)) for slot in slots(4, 4)
    )
    yield Snapshot(0.0, (group(),), other, (job(1),))
    yield Snapshot(0.0, (group(), group(name="x", rg="x")), other, (job(1), job(2, group="x")))


def test_sizes() -> None:
    full = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1})
    halves = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 2})
    assert _sizes(full, running(job(1)), job(2)) == {1: 4, 2: 4}
    assert _sizes(halves, running(job(1)), running(job(2, 10000))) == {1: 3, 2: 5}
    assert _sizes(slots(4, 4), job(1, 10000), job(2, 10000), job(3, 1)) == {1: 4, 2: 3, 3: 1}
    assert _sizes(slots(4, 4), job(1, 9000), job(2, 4000), job(3, 4000)) == {1: 4, 2: 2, 3: 2}
    assert _sizes(slots(4, 4), job(1, 7000), job(2, 3900)) == {1: 5, 2: 3}
    assert _sizes(slots(4, 4), job(1, most=2), job(2)) == {1: 2, 2: 6}
    assert _sizes(full, running(job(1, 1, least=6)), job(2, 9000, least=4)) == {1: 8, 2: 0}
    assert _sizes(full, running(job(1, least=6)), job(2, least=3), job(3)) == {1: 6, 2: 0, 3: 2}
    assert _sizes(full, running(job(1, least=6)), job(2, least=3), job(3, least=3)) == {1: 8, 2: 0, 3: 0}
    later = running(job(1, submitted_at=9.0))
    assert _sizes(full, later, job(2), policy="fifo") == {1: 8, 2: 0}
    assert _sizes(slots(4, 4), job(1), job(2, 9000), policy="fifo") == {1: 8, 2: 0}
    assert _sizes(slots(4, 4), job(1), job(2, 9000), policy="priority") == {1: 0, 2: 8}
    assert _sizes(full, later, job(2), policy="priority") == {1: 8, 2: 0}
    drained = tuple(replace(slot, claimable=slot.ref.host == "h2") for slot in hold(slots(4, 4), {"h1:0-3": 1}))
    assert _sizes(drained, running(job(1, least=3)), job(2, 9000, least=2)) == {1: 4, 2: 0}
    stopped = Snapshot(0.0, (group("priority"),), full, (running(job(1, least=4)), job(2, 9000, most=6)))
    assert lines(schedule(stopped))[1].preempt


def test_places() -> None:
    """Whole hosts are left to others, and groups leave each other's slots alone."""
    scattered = hold(slots(4, 4, 2), {"h1:0-3": 1, "h2:0-1": 1})
    shrinking = lines(schedule(Snapshot(0.0, (group(),), scattered, (running(job(1, most=4)),))))[1]
    assert {ref.host for ref in shrinking.slots} == {"h1"}
    starting = lines(schedule(Snapshot(0.0, (group(),), slots(4, 4, 2), (job(1, most=2),))))[1]
    assert {ref.host for ref in starting.slots} == {"h3"}
    growing = hold(slots(2, 4), {"h2:0": 1})
    grown = lines(schedule(Snapshot(0.0, (group(),), growing, (running(job(1, most=3)),))))[1]
    assert {ref.host for ref in grown.slots} == {"h2"}
    assert grown.reason.code == PlanReason.GREW_INTO_FREE_SLOTS
    groups = (group(name="a", quota=4), group(name="b"))
    held = hold(slots(5), {"h1:0-2": 1})
    held = tuple(replace(slot, vacating=slot.held_by == 1 and slot.ref.index > 0) for slot in held)
    jobs = (running(job(1, group="a", most=1)), job(2, group="a", least=3, most=3), job(3, group="b"))
    shared = Snapshot(0.0, groups, held, jobs)
    plan = schedule(shared)
    check_plan(shared, plan)
    assert {line.job: line.target for line in plan.jobs} == {1: 1, 2: 3, 3: 1}
    assert len(lines(plan)[3].claim) == 1


def test_shares_of_groups() -> None:
    """Quotas, weights, loans, and what comes back of them."""
    a, b = group(name="a"), group(name="b")
    mine, other = job(1, group="a"), job(2, group="b")
    free, full = slots(4, 4), hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1})
    assert _parts(free, (a, b), mine, other) == {1: 4, 2: 4}
    assert _parts(free, (replace(a, quota=6), b), mine, other) == {1: 7, 2: 1}
    assert _parts(free, (replace(a, weight=3), b), mine, other) == {1: 6, 2: 2}
    assert _parts(slots(4, 5), (replace(a, weight=2), b), mine, other) == {1: 6, 2: 3}
    assert _parts(slots(4, 3), (a, b), mine, other) == {1: 4, 2: 3}
    assert _parts(slots(4, 3), (a, replace(b, weight=2)), mine, other) == {1: 2, 2: 5}
    assert _parts(free, (replace(a, started=False),), mine) == {1: 0}
    assert _parts(free, (replace(a, quota=2, borrows=False), b), mine, job(2, group="b", most=3)) == {
        1: 2,
        2: 3,
    }
    assert _parts(free, (replace(a, quota=3, lends=False), b), other) == {2: 5}
    assert _parts(free, (a, b), mine, job(2, group="b", least=5, most=5)) == {1: 8, 2: 0}
    assert _parts(free, (a, replace(b, started=False)), mine, other) == {1: 8, 2: 0}
    for policy in ("fifo", "priority", "fairshare"):
        borrower = replace(a, policy=policy, preemption=False)
        assert _parts(full, (borrower, b), running(mine), other) == {1: 4, 2: 4}


def test_stops() -> None:
    a, b = group(name="a"), group(name="b", quota=6)
    pairs = hold(slots(4, 4), {"h1:0-1": 1, "h1:2-3": 2, "h2:0-3": 3})
    first, second = (running(job(n, group="a", least=2, most=2, elastic=False)) for n in (1, 2))
    third = running(job(3, 9000, group="a", least=1, most=4))
    waits = job(4, group="b", most=6)
    assert _parts(pairs, (a, b), first, second, third, waits) == {1: 0, 2: 0, 3: 2, 4: 6}
    assert _parts(pairs, (a, replace(b, quota=5)), first, second, third, replace(waits, max_slots=5)) == {
        1: 2, 2: 0, 3: 1, 4: 5,
    }  # fmt: skip
    new = replace(second, started_at=-1.0)
    kept = replace(a, minimum_run_seconds=60)
    old = [replace(view, started_at=-99.0) for view in (first, third)]
    assert _parts(pairs, (kept, replace(b, quota=5)), old[0], new, old[1], replace(waits, max_slots=5)) == {
        1: 0, 2: 2, 3: 1, 4: 5,
    }  # fmt: skip
    ranked = Snapshot(
        0.0, (replace(kept, policy="priority"),), pairs, (old[0], new, old[1], job(5, 10000, group="a", least=8))
    )
    check_plan(ranked, schedule(ranked))
    assert lines(schedule(ranked))[2].target == 2
    grows = hold(slots(4, 4), {"h1:0-3": 1})
    gang = job(2, group="b", least=8, most=8)
    assert _parts(grows, (a, b), running(job(1, group="a", most=4, least=4)), gang) == {1: 4, 2: 0}


def test_disturbance() -> None:
    """No more is stopped or moved than must be, and a group below its part claims first."""
    a, b = group(name="a"), group(name="b", quota=6)
    pairs = hold(slots(4, 5), {"h1:0-1": 1, "h1:2-3": 2})
    mine = tuple(running(job(n, group="b", least=2, most=2, elastic=False)) for n in (1, 2))
    theirs = tuple(job(n, group="a", least=2, most=2, elastic=False) for n in (3, 4))
    groups = (a, replace(b, quota=None), group(name="c"))
    kept = _parts(pairs, groups, *mine, *theirs, job(5, group="c"))
    assert kept == {1: 2, 2: 2, 3: 2, 4: 0, 5: 3}
    held = hold(slots(4, 4), {"h1:0-3": 1, "h2:0": 2})
    large, small = (running(job(n, group="a", least=size, most=size, elastic=False)) for n, size in ((1, 4), (2, 1)))
    assert _parts(held, (a, replace(b, quota=7)), large, small, job(3, group="b", most=7)) == {
        1: 0,
        2: 1,
        3: 7,
    }
    strict = replace(a, policy="priority", minimum_run_seconds=60)
    new = replace(running(job(1, group="a", least=2, most=2)), started_at=-1.0)
    early = hold(slots(4, 4), {"h1:0-1": 1})
    assert _parts(early, (strict, replace(b, quota=8)), new, job(2, group="b")) == {1: 2, 2: 6}
    over = hold(slots(4, 2), {"h1:0-2": 1, "h1:3": 2})
    jobs = (running(job(1, 1, group="a", least=3, most=3, elastic=False)), running(job(2, group="a")))
    plan = lines(schedule(Snapshot(0.0, (a, replace(b, quota=4)), over, (*jobs, job(3, group="b", most=4)))))
    assert (plan[1].preempt, plan[2].target, len(plan[2].claim), len(plan[3].claim)) == (True, 2, 0, 2)


def test_overlap() -> None:
    """A job that can run elsewhere leaves a host to a group that cannot."""
    offers = {"h1": ("x",), "h2": ("rg", "x")}
    shared = tuple(replace(slot, resource_groups=offers[slot.ref.host]) for slot in hold(slots(4, 4), {"h2:0-3": 2}))
    jobs = (job(1, group="a", most=4), running(job(2, group="b", most=4)))
    cluster = SimulatedCluster(Snapshot(0.0, (group(name="a"), group(name="b", rg="x")), shared, jobs))
    cluster.settle()
    assert {ref.host for ref in cluster.held(1)} == {"h2"}
    assert {ref.host for ref in cluster.held(2)} == {"h1"}


def _parts(held: tuple[SlotView, ...], groups: tuple[GroupView, ...], *jobs: JobView) -> dict[int, int]:
    snapshot = Snapshot(0.0, groups, held, jobs)
    plan = schedule(snapshot)
    check_plan(snapshot, plan)
    check_reasons(snapshot, plan)
    return {line.job: line.target for line in plan.jobs}


def _sizes(held: tuple[SlotView, ...], *jobs: JobView, policy: Policy = "fairshare") -> dict[int, int]:
    snapshot = Snapshot(0.0, (group(policy),), held, jobs)
    return {line.job: line.target for line in schedule(snapshot).jobs}
