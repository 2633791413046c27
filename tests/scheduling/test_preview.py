"""Previews: the very plan that would come next, and forecasts that hold when they are played."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.messages import text_of
from scheduling.forecast import Forecast, Span, Work, expected_starts, forecast
from scheduling.preview import TargetChange, preview, with_changes, with_job
from scheduling.schedule import run_cycle, schedule
from scheduling.snapshot import Snapshot
from tests.scheduling.cluster import (
    Policy,
    SimulatedCluster,
    group,
    hold,
    job,
    lines,
    running,
    slots,
    targets,
    text_for,
)
from tests.scheduling.strategies import snapshots

thorough = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

FULL = hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 1})


@thorough
@given(snapshots())
def test_one_jobs_line_alone_is_its_line_of_the_plan(snapshot: Snapshot) -> None:
    result = run_cycle(snapshot)
    assert tuple(result.line(job) for job in sorted(result.placed)) == schedule(snapshot).jobs


@thorough
@given(snapshots(), st.data())
def test_a_new_jobs_preview_is_the_next_plan(snapshot: Snapshot, data: st.DataObject) -> None:
    least = data.draw(st.integers(1, 5))
    fields = {"group": data.draw(st.sampled_from(snapshot.groups)).name, "least": least, "submitted_at": 100.0}
    new = job(50, data.draw(st.sampled_from([1, 5000, 10000])), most=data.draw(st.integers(least, 9)), **fields)
    seen = preview(snapshot, with_job(snapshot, new), 50)

    without = targets(SimulatedCluster(snapshot).cycle())
    cluster = SimulatedCluster(snapshot)
    cluster.submit(new)
    plan = cluster.cycle()
    assert seen.line == lines(plan)[50]
    changed = [line for line in plan.jobs if line.job != 50 and line.target != without[line.job]]
    assert list(seen.others) == [
        TargetChange(line.job, without[line.job], line.target, line.preempt) for line in changed
    ]
    if seen.then is not None:
        assert seen.then in [lines(cluster.cycle())[50].reason for _ in range(2)]


@thorough
@given(snapshots(), st.data())
def test_a_changes_preview_is_the_next_plan(snapshot: Snapshot, data: st.DataObject) -> None:
    elastic = [view for view in snapshot.jobs if view.elastic]
    if not elastic:
        return
    view = data.draw(st.sampled_from(elastic))
    fields = {"priority": data.draw(st.sampled_from([1, 9000])), "max_slots": data.draw(st.integers(view.min_slots, 9))}
    seen = preview(snapshot, with_changes(snapshot, view.id, **fields), view.id)

    cluster = SimulatedCluster(snapshot)
    assert seen.before == targets(SimulatedCluster(snapshot).cycle())[view.id]
    cluster.change(view.id, **fields)
    assert seen.line == lines(cluster.cycle())[view.id]


def test_who_waits_for_gpus_that_are_given_back_reads_why_it_will_have_them() -> None:
    snapshot = Snapshot(0.0, (group(),), FULL, (running(job(1)),))
    seen = preview(snapshot, with_job(snapshot, job(2)), 2)
    assert (seen.line.target, seen.line.slots, seen.others) == (4, (), (TargetChange(1, 8, 4, False),))
    assert text_for(seen.line) == "Waits: 4 of 4 GPUs are being released by T1."
    assert seen.then is not None
    assert text_of(seen.then.params) == "4 of 8 GPUs: T1 has the same priority (5000)."


def exactly(gpu_seconds: float, seconds: float) -> Work:
    return Work((gpu_seconds, gpu_seconds), (seconds, seconds))


def foreseen(snapshot: Snapshot, number: int, works: dict[int, Work]) -> Forecast:
    return forecast(run_cycle(snapshot).decision(number), number, works)


@pytest.mark.parametrize("policy", ["fifo", "priority", "fairshare"])
def test_a_job_starts_when_the_one_before_it_ends(policy: Policy) -> None:
    queue = Snapshot(0.0, (group(policy),), FULL, (running(job(1, least=8)), job(2, least=8)))
    works = {1: exactly(800.0, 100.0), 2: exactly(80.0, 10.0)}
    assert foreseen(queue, 2, works) == Forecast(Span(100.0, 100.0), Span(110.0, 110.0))


def test_a_share_that_grows_ends_between_both_assumptions() -> None:
    """Alone on 8 it took 80 s: 4 GPUs for 40 s, then 8, make it something between 80 and 120 s."""
    both = Snapshot(0.0, (group(),), hold(slots(4, 4), {"h1:0-3": 1, "h2:0-3": 2}), (running(job(1)), running(job(2))))
    works = {1: exactly(160.0, 40.0), 2: exactly(640.0, 80.0)}
    end = foreseen(both, 2, works).end
    assert end == Span(80.0, pytest.approx(100.0))


def test_nobody_can_say_where_nobody_knows() -> None:
    queue = Snapshot(0.0, (group(),), FULL, (running(job(1, least=8)), job(2, least=8)))
    assert foreseen(queue, 2, {2: exactly(80.0, 10.0)}) == Forecast(None, None)
    assert foreseen(queue, 1, {}) == Forecast(Span(0.0, 0.0), None)


def test_limits_say_when_it_starts_at_the_latest_as_its_reservation_does() -> None:
    """T1 may be over at any time, and is at its limit; who fills the hole has one of its own."""
    jobs = (
        running(job(1, least=4, most=4, elastic=False, ends_at=60.0)),
        job(2, least=8, elastic=False),
        job(3, lasts=9.0),
    )
    queue = Snapshot(
        0.0, (group(),), hold(slots(4, 4), {"h1:0-3": 1}), (*jobs, job(4, least=8, elastic=False, lasts=5.0))
    )
    decision = run_cycle(queue).decision(2)
    assert decision.reservation is not None
    assert (decision.reservation.job, decision.reservation.at) == (2, 60.0)
    found = expected_starts(decision, {})
    assert found[2] == foreseen(queue, 2, {}).start == Span(0.0, 60.0)
    assert 4 not in found  # nobody knows how long T2 takes
    assert expected_starts(decision, {2: exactly(80.0, 10.0)})[4] == Span(10.0, 70.0)


def test_the_play_is_bounded() -> None:
    """Ten thousand waiting jobs, each with a known length: only a few ends are played."""
    waiting = tuple(job(number, least=8) for number in range(2, 10_000))
    queue = Snapshot(0.0, (group(),), FULL, (running(job(1, least=8)), *waiting))
    works = {number: exactly(8.0, 1.0) for number in range(1, 10_000)}
    assert foreseen(queue, 9_999, works).start is None
    assert foreseen(queue, 2, works).start == Span(1.0, 1.0)


def test_each_of_ten_thousand_that_wait_has_its_start() -> None:
    waiting = tuple(job(number, least=8) for number in range(2, 10_000))
    queue = Snapshot(0.0, (group(),), FULL, (running(job(1, least=8)), *waiting))
    works = {number: exactly(8.0, 1.0) for number in range(1, 10_000)}
    result = run_cycle(queue)
    assert result.queues == {"g": [view.id for view in waiting]}
    found = expected_starts(result.decision(2), works)
    assert len(found) == len(waiting)
    for number in (2, 3, 500, 9_999):
        assert found[number] == Span(pytest.approx(number - 1), pytest.approx(number - 1))  # type: ignore[arg-type]


def test_who_has_a_higher_priority_is_before_others_in_the_queue() -> None:
    jobs = (running(job(1, least=8)), job(2, 3000, least=8), job(3, 7000, least=8), job(4, 3000, least=8))
    result = run_cycle(Snapshot(0.0, (group(),), FULL, jobs))
    assert list(result.queues.values()) == [[3, 2, 4]]
    assert expected_starts(result.decision(2), {}) == {}


def test_who_starts_with_the_plan_is_in_no_queue() -> None:
    result = run_cycle(Snapshot(0.0, (group(),), slots(4), (job(1, least=4), job(2, least=4))))
    assert list(result.queues.values()) == [[2]]


def test_work_shrinks_as_it_is_done() -> None:
    work = Work((80.0, 160.0), (10.0, 40.0)).after(8.0, 5)
    assert work == Work((40.0, 120.0), (2.0, 32.0))
    assert work.after(30.0, 8).rate(8, quick=True) == pytest.approx(8000.0)


@thorough
@given(snapshots(max_groups=1), st.data())
def test_the_queue_starts_each_job_when_it_is_foreseen_alone(snapshot: Snapshot, data: st.DataObject) -> None:
    seconds = {view.id: float(data.draw(st.integers(1, 50))) for view in snapshot.jobs}
    works = {number: exactly(8 * length, length) for number, length in seconds.items()}
    result = run_cycle(snapshot)
    for decision, _ in result.groups:
        found = expected_starts(decision, works)
        for demand in decision.pool.demands:
            if not demand.running:
                assert found.get(demand.id) == forecast(decision, demand.id, works).start


@thorough
@given(snapshots(max_groups=1), st.data())
def test_a_played_cluster_starts_the_job_when_it_was_foreseen(snapshot: Snapshot, data: st.DataObject) -> None:
    """With lengths that do not depend on GPUs there is one truth, and turning the scheduler by hand finds it."""
    usable = tuple(replace(slot, claimable=True, resource_groups=("r1", "r2")) for slot in snapshot.slots)
    whole = tuple(replace(slot, held_by=None, vacating=False) if slot.vacating else slot for slot in usable)
    snapshot = replace(snapshot, slots=tuple(replace(s, held_by=None) if s.held_by == 99 else s for s in whole))
    held = {slot.held_by for slot in snapshot.slots}
    limitless = (replace(view, lasts=None, ends_at=None) for view in snapshot.jobs)
    jobs = tuple(replace(v, state="RUNNING" if v.id in held else "PENDING") for v in limitless)
    snapshot = replace(snapshot, jobs=(*jobs, job(50, 3000, group="a", submitted_at=100.0)))
    lengths = {view.id: float(data.draw(st.integers(1, 50)) * 10 + view.id) for view in snapshot.jobs}
    works = {number: Work((1e-9, 1e12), (seconds, seconds)) for number, seconds in lengths.items()}
    works = {number: Work((1e6, 1e6 * 1e-6), work.seconds) for number, work in works.items()}
    seen = forecast(run_cycle(snapshot).decision(50), 50, works)

    cluster, now, left = SimulatedCluster(snapshot), 0.0, dict(lengths)
    while True:
        cluster.settle()
        trains = [view.id for view in cluster.snapshot.jobs if cluster.held(view.id)]
        if 50 in trains or not trains:
            break
        first = min(trains, key=lambda number: (left[number], number))
        now += left[first]
        left = {number: left[number] - (left[first] if number in trains else 0) for number in left if number != first}
        cluster.end(first)
    if 50 in trains:
        assert seen.start is not None
        assert seen.start.earliest == pytest.approx(now)
    else:
        assert seen.start is None
