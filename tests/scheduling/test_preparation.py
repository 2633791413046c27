"""Slots only on hosts that have a job's environment, and none taken from anybody before."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.plan import PlanReason
from scheduling.preparation import PreparedCycle, run_prepared_cycle
from scheduling.preview import after_cycle
from scheduling.snapshot import JobView, Snapshot
from tests.scheduling.cluster import Policy, group, hold, job, lines, running, slots, targets, text_for
from tests.scheduling.strategies import snapshots
from tests.scheduling.test_properties import thorough

NEITHER = frozenset({"h1", "h2"})


def cycle(*jobs: JobView, held: dict[str, int] | None = None, policy: Policy = "fairshare") -> PreparedCycle:
    return run_prepared_cycle(Snapshot(0.0, (group(policy),), hold(slots(2, 2), held or {}), jobs))


def test_a_job_that_waits_waits_for_hosts_to_be_prepared_and_others_get_the_slots() -> None:
    first = cycle(job(1, unprepared=NEITHER), job(2))
    assert first.wanted == {1: ("h1",)}
    plan = lines(first.plan())
    assert (plan[1].target, plan[1].reason.code) == (0, PlanReason.PREPARING)
    assert text_for(plan[1]) == "Waits: h1 prepares its packages before it starts."
    assert len(plan[2].claim) == 4
    alone = cycle(job(1, unprepared=NEITHER))
    assert alone.wanted == {1: ("h1", "h2")}


def test_it_starts_where_it_can_and_grows_later() -> None:
    first = cycle(job(1, unprepared=frozenset({"h2"})))
    [line] = first.plan().jobs
    assert first.wanted == {1: ("h2",)}
    assert {ref.host for ref in line.claim} == {"h1"}
    assert text_for(line) == "2 GPUs: h2 prepares its packages before it can grow there."
    fixed = cycle(job(1, least=4, most=4, elastic=False, unprepared=frozenset({"h2"})))
    assert fixed.plan().jobs[0].claim == ()
    assert fixed.wanted == {1: ("h2",)}


def test_prepared_hosts_are_preferred() -> None:
    first = cycle(job(1, most=2, unprepared=frozenset({"h1"})))
    assert {ref.host for ref in first.plan().jobs[0].claim} == {"h2"}
    assert not first.wanted


def test_nothing_is_taken_from_anybody_for_a_job_that_could_not_use_it_yet() -> None:
    held = {"h1:0-1": 1, "h2:0-1": 1}
    waits = job(2, unprepared=NEITHER)
    first = cycle(running(job(1)), waits, held=held)
    assert targets(first.plan()) == {1: 4, 2: 0}
    assert first.wanted == {2: ("h2",)}
    prepared = cycle(running(job(1)), replace(waits, unprepared=frozenset({"h1"})), held=held)
    assert targets(prepared.plan()) == {1: 2, 2: 2}


def test_a_job_that_runs_does_not_grow_where_it_could_not_run() -> None:
    runs = running(job(1, unprepared=frozenset({"h2"})))
    first = cycle(runs, held={"h1:0-1": 1})
    [line] = first.plan().jobs
    assert (line.target, line.claim, line.vacate) == (2, (), ())
    assert line.reason.code == PlanReason.PREPARING
    assert first.wanted == {1: ("h2",)}


def test_a_host_where_it_cannot_be_had_is_not_asked_again() -> None:
    first = cycle(running(job(1, unprepared=frozenset({"h2"}), unfit=frozenset({"h2"}))), held={"h1:0-1": 1})
    [line] = first.plan().jobs
    assert not first.wanted
    assert (line.claim, line.vacate) == ((), ())
    assert text_for(line) == "2 GPUs: its packages cannot be installed on h2, see the page Environments."


def test_what_a_host_cannot_give_to_a_job_others_get() -> None:
    runs = running(job(1, unprepared=frozenset({"h2"}), unfit=frozenset({"h2"})))
    plan = lines(cycle(runs, job(2), held={"h1:0-1": 1}).plan())
    assert plan[1].target == 2
    assert {ref.host for ref in plan[2].claim} == {"h2"}
    assert len(plan[2].claim) == 2


def test_a_job_starts_where_its_environment_can_be_had_and_waits_for_no_others() -> None:
    waits = job(1, unprepared=frozenset({"h1"}), unfit=frozenset({"h1"}))
    [line] = cycle(waits).plan().jobs
    assert {ref.host for ref in line.claim} == {"h2"}


def test_a_job_that_could_start_nowhere_starts_to_fail_with_the_reason() -> None:
    [line] = cycle(job(1, unprepared=NEITHER, unfit=NEITHER)).plan().jobs
    assert len(line.claim) == 4
    fixed = job(1, least=2, most=2, elastic=False, one_host=True, unprepared=NEITHER, unfit=NEITHER)
    [line] = cycle(fixed).plan().jobs
    assert len(line.claim) == 2


@pytest.mark.parametrize("fields", [{}, {"elastic": False}, {"elastic": False, "one_host": True},
                                    {"elastic": False, "equal_hosts": True}])  # fmt: skip
def test_a_job_waits_for_a_host_that_may_do_beside_one_that_cannot(fields: dict[str, bool]) -> None:
    waits = job(1, least=2, most=2, unprepared=NEITHER, unfit=frozenset({"h1"}), **fields)
    full = cycle(waits, running(job(2, least=2, most=2)), held={"h2:0-1": 2})
    assert lines(full.plan())[1].claim == ()
    free = cycle(waits)
    assert free.wanted == {1: ("h2",)}
    assert lines(free.plan())[1].claim == ()
    ready = cycle(replace(waits, unprepared=frozenset({"h1"})))
    assert {ref.host for ref in lines(ready.plan())[1].claim} == {"h2"}


def test_a_job_stays_on_a_draining_host_until_another_is_prepared() -> None:
    draining = tuple(replace(slot, claimable=slot.ref.host == "h2") for slot in hold(slots(2, 2), {"h1:0-1": 1}))
    view = running(job(1, most=2, unprepared=frozenset({"h2"})))
    found = run_prepared_cycle(Snapshot(0.0, (group(),), draining, (view,)))
    [line] = found.plan().jobs
    assert (line.claim, line.vacate, found.wanted) == ((), (), {1: ("h2",)})
    ready = run_prepared_cycle(Snapshot(0.0, (group(),), draining, (replace(view, unprepared=frozenset()),)))
    assert len(ready.plan().jobs[0].claim) == 2


@pytest.mark.parametrize("policy", ["fairshare", "priority"])
def test_who_gives_way_leaves_a_host_that_is_of_use(policy: Policy) -> None:
    """Nobody is shrunk or stopped for slots that cannot be used, and then again."""
    cannot = frozenset({"h2"})
    seen = Snapshot(
        0.0,
        (group(policy),),
        hold(slots(2, 2), {"h1:0-1": 1, "h2:0-1": 1}),
        (running(job(1)), job(2, 6000, unprepared=cannot, unfit=cannot)),
    )
    moves = []
    for _ in range(8):
        plan = lines(run_prepared_cycle(seen).plan())
        moves.append(len(plan[1].vacate))
        seen = after_cycle(seen, plan)
    assert {slot.ref.host for slot in seen.slots if slot.held_by == 2} == {"h1"}
    assert sum(moves) == 2


def test_a_second_plan_gives_nothing_on_hosts_that_are_not_prepared() -> None:
    found = cycle(job(1, unprepared=frozenset({"h2"})), job(2, unprepared=NEITHER))
    assert {ref.host for ref in lines(found.plan())[1].claim} == {"h1"}


@thorough
@given(snapshots(), st.data())
def test_no_plan_claims_slots_on_a_host_that_is_not_prepared(snapshot: Snapshot, data: st.DataObject) -> None:
    hosts = st.frozensets(st.sampled_from(sorted({slot.ref.host for slot in snapshot.slots}) or ["h1"]))
    lacking = {one.id: (data.draw(hosts), data.draw(hosts)) for one in snapshot.jobs}
    views = [replace(one, unprepared=lacking[one.id][0] | lacking[one.id][1], unfit=lacking[one.id][1])
             for one in snapshot.jobs]  # fmt: skip
    found = run_prepared_cycle(replace(snapshot, jobs=tuple(views)))
    plan = lines(found.plan())
    assert plan.keys() == {one.id for one in views}
    for view in views:
        claimed = {ref.host for ref in plan[view.id].claim}
        is_let_in = view.state == "PENDING" and claimed <= view.unfit
        assert not claimed & view.unprepared or is_let_in
        assert not {*found.wanted.get(view.id, ())} - (view.unprepared - view.unfit)
        assert text_for(plan[view.id])
