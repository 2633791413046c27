"""The cluster's trace: who had how many GPUs, from however many changes."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from core.charts import Step
from insights.cluster_trace import (
    BUCKETS,
    MAX_BANDS,
    MAX_STEPS,
    Change,
    all_changes,
    cluster_trace,
    first_window,
    means,
    summed,
    trace_of,
)
from jobs.messages import message
from jobs.models import AllocationPoint, Job, SlotClaim
from scheduling.plan import PlanReason
from tests.factories import HostFactory, JobFactory, host_with_slots
from workers.models import CapacityPoint, Slot

END = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return END - timedelta(minutes=minutes)


def test_means_keep_what_was_held() -> None:
    steps = [Step(at(100), 4), Step(at(45), 8), Step(at(30), 0)]

    assert [step.slots for step in means(steps, at(60), END, buckets=4)] == [4, 8, 0, 0]
    assert [step.slots for step in means(steps, at(60), END, buckets=2)] == [6, 0]
    assert [step.slots for step in means([], at(60), END, buckets=2)] == [0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_means_have_the_same_area_as_the_steps(seed: int) -> None:
    dice = random.Random(seed)
    moments = sorted(dice.randint(0, 3600) for _ in range(dice.randint(1, 40)))
    steps = [Step(at(60) + timedelta(seconds=second), dice.randint(0, 8)) for second in moments]
    ends = [*(step.at for step in steps[1:]), END]
    area = sum(step.slots * (until - step.at).total_seconds() for step, until in zip(steps, ends, strict=True))
    buckets = dice.randint(1, 50)

    shown = sum(step.slots for step in means(steps, at(60), END, buckets)) * 3600 / buckets

    assert shown == pytest.approx(area, abs=0.001 * 3600)


def test_several_jobs_as_one_change_whenever_one_of_them_does() -> None:
    one = [Change(1, at(10), 2), Change(1, at(5), 0)]
    other = [Change(2, at(8), 3)]

    assert [(change.at, change.slots) for change in summed([one, other])] == [(at(10), 2), (at(8), 5), (at(5), 3)]


def job_with(owner: User, points: list[tuple[float, int]], name: str = "training") -> Job:
    job = JobFactory(owner=owner, name=name, started_at=at(points[0][0]), max_slots=8)
    AllocationPoint.objects.bulk_create(
        AllocationPoint(
            job=job,
            at=at(minutes),
            slots=slots,
            attempt=1,
            generation=number,
            reason_code=PlanReason.GRANTED,
            reason_params=message("no_progress", text=f"{slots} of 8 GPUs."),
            pause_ms=30.0,
        )
        for number, (minutes, slots) in enumerate(points)
    )
    return job


def test_a_window_begins_with_what_each_job_had_then(alice: User) -> None:
    host_with_slots("host", 8)
    early = job_with(alice, [(90, 2), (70, 4)])
    over = job_with(alice, [(90, 2), (70, 0)])
    late = job_with(alice, [(20, 3)])

    trace = cluster_trace(alice, END, 60)

    assert (trace.capacity, trace.count, trace.mean_seconds) == (8, 1, None)
    assert {band.job: [step.slots for step in band.steps] for band in trace.bands} == {early.pk: [4], late.pk: [3]}
    assert over.pk not in {band.job for band in trace.bands}


@pytest.mark.parametrize(
    ("claims", "minutes"),
    [
        ([], 5),
        ([(4.0, None)], 5),
        ([(40.0, 30.0)], 60),
        ([(3000.0, None)], 60),
        ([(3000.0, 50.0)], 60),
        ([(3000.0, 200.0)], 360),
        ([(3000.0, 1000.0)], 1440),
        ([(3000.0, 2000.0)], 60),
    ],
)
def test_the_first_window_is_the_shortest_with_a_held_gpu(
    alice: User, claims: list[tuple[float, float | None]], minutes: int
) -> None:
    slot, job = host_with_slots("gpu-host", 1).slots.get(), JobFactory(owner=alice)
    for start, end in claims:
        released = None if end is None else at(end)
        SlotClaim.objects.create(slot=slot, job=job, attempt=1, claimed_at=at(start), released_at=released)
    assert first_window(END) == minutes


def test_a_group_has_what_its_own_trainings_had(alice: User) -> None:
    host = host_with_slots("host", 8)
    mine, other = job_with(alice, [(90, 2), (20, 3)]), job_with(alice, [(30, 4)])
    for job, slot in zip((mine, other, other), Slot.objects.filter(host=host), strict=False):
        SlotClaim.objects.create(slot=slot, job=job, attempt=1, claimed_at=at(40))

    trace = cluster_trace(alice, END, 60, mine.instance_group)

    assert {band.job: [step.slots for step in band.steps] for band in trace.bands} == {mine.pk: [2, 3]}
    assert (trace.count, [step.slots for step in trace.held]) == (1, [0, 1])


def test_a_trace_may_be_of_any_trainings(alice: User) -> None:
    mine, _ = job_with(alice, [(20, 3)], name="mine"), job_with(alice, [(30, 4)])

    trace = trace_of(alice, at(60), END, {"job__name": "mine"}, 6)

    assert {band.job: [step.slots for step in band.steps] for band in trace.bands} == {mine.pk: [3]}
    assert (trace.capacity, trace.capacities, trace.count) == (6, [], 1)


def offered(name: str, points: list[tuple[float, int]]) -> None:
    host = HostFactory(name=name, ngpus=8)
    for minutes, slots in points:
        CapacityPoint.objects.create(host=host, at=at(minutes), slots=slots)


def test_the_capacity_is_that_of_each_time(alice: User) -> None:
    offered("one", [(300, 2), (200, 8), (90, 4), (20, 0), (10, 4)])
    offered("two", [(30, 8)])

    steps = cluster_trace(alice, END, 60).capacities

    assert [(step.at, step.slots) for step in steps] == [(at(60), 4), (at(30), 12), (at(20), 8), (at(10), 12)]


def test_the_capacity_begins_where_its_history_does(alice: User) -> None:
    offered("one", [(30, 8)])
    assert cluster_trace(alice, END, 15).capacities == [Step(at(15), 8)]
    assert cluster_trace(alice, END, 60).capacities == [Step(at(30), 8)]


def test_others_see_the_gpus_but_neither_names_nor_reasons(alice: User, bob: User, carol: User) -> None:
    job_with(alice, [(20, 3)], name="secret")

    [hidden], [shown], [staffs] = (cluster_trace(user, END, 60).bands for user in (bob, alice, carol))

    assert (hidden.label, hidden.steps[0].text) == ("another user's training", "")
    assert hidden.steps[0].slots == 3
    assert (shown.label, shown.steps[0].text) == ("secret", "3 of 8 GPUs.")
    assert staffs.label == "secret"
    assert [(change.text, name) for change, name in all_changes(bob, at(60))] == [("", "another user's training")]
    assert [(change.text, name) for change, name in all_changes(alice, at(60))] == [("3 of 8 GPUs.", "secret")]


def test_ones_own_trainings_come_before_larger_ones_of_others(alice: User, bob: User, carol: User) -> None:
    own = job_with(alice, [(50, 1)])
    others = [job_with(bob, [(50, 4)]) for _ in range(MAX_BANDS + 1)]
    seen = cluster_trace(alice, END, 60).bands
    assert own.pk in {band.job for band in seen}
    assert [band.label for band in seen].count("another user's training") == MAX_BANDS - 2
    assert seen[-1].label == f"{len(others) - MAX_BANDS + 2} others"
    assert own.pk not in {band.job for band in cluster_trace(carol, END, 60).bands}, "carol has none: the largest"


def test_ten_thousand_changes_become_few_points_by_as_many_queries(alice: User) -> None:
    dice = random.Random(1)
    few = [job_with(alice, [(minutes, dice.randint(1, 8)) for minutes in (50, 40, 30)]) for _ in range(3)]
    with CaptureQueriesContext(connection) as before:
        cluster_trace(alice, END, 60)

    many = [sorted((dice.uniform(0, 59) for _ in range(500)), reverse=True) for _ in range(20)]
    for moments in many:
        job_with(alice, [(minutes, dice.randint(1, 8)) for minutes in moments])
    with CaptureQueriesContext(connection) as after:
        trace = cluster_trace(alice, END, 60)

    assert (len(before), len(after)) == (8, 9), "one more asks which trainings are the viewer's own"
    assert trace.count == 10_000 + 3 * len(few)
    assert trace.mean_seconds == pytest.approx(3600 / BUCKETS)
    assert len(trace.bands) == MAX_BANDS
    assert trace.bands[-1].label == "17 others"
    assert all(len(band.steps) == BUCKETS for band in trace.bands)
    assert len(trace.changes) == MAX_STEPS
