"""An action on many jobs does to each what it does to one, and costs as many queries for a hundred as for ten."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext

from core.live import Event, hold
from core.models import AuditEntry, Topic
from jobs import actions
from jobs.actions.bulk import cancel_many, change_priority_of_many, undo_many
from jobs.models import Job, JobEvent, JobRun, SlotClaim
from jobs.states import JobState
from jobs.topics import job_of_topic
from tests.factories import JobFactory, host_with_slots
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.topics import CLUSTER

pytestmark = pytest.mark.django_db

#: Columns that differ between two jobs to which the same has happened.
_OWN = frozenset(
    {"id", "job_id", "owner_id", "key", "slot_id", "name", "name_folded", "lead_host", "generation", "vacate_revision"}
)


def two_of_each_kind(cluster: Cluster, submit: Submit) -> tuple[list[int], list[int]]:
    """Twice a job that trains, one that starts, one that is being preempted, two that wait, and one held back."""
    held = [[submit(max_slots=1) for _ in range(3)] for _ in range(2)]
    cluster.turn()
    for trains, _, leaves in held:
        cluster.train(trains)
        cluster.train(leaves)
    halves = []
    for jobs in held:
        actions.suspend(jobs[2].pk, "alice")
        waiting = [submit(max_slots=1), submit(max_slots=2, priority=4000), submit(max_slots=1)]
        actions.suspend(waiting[2].pk, "alice")
        halves.append([job.pk for job in (*jobs, *waiting)])
    return halves[0], halves[1]


def assert_alike(first: list[int], second: list[int]) -> None:
    """All rows about each job are those of its twin, but for what tells one job from another, or when it was."""
    for one, twin in zip(first, second, strict=True):
        for rows, others in zip(_rows_of(one), _rows_of(twin), strict=True):
            assert [_plain(row) for row in rows.values()] == [_plain(row) for row in others.values()]


def _rows_of(job: int) -> tuple[QuerySet[Any], ...]:
    return (
        Job.objects.filter(pk=job),
        JobRun.objects.filter(job=job),
        JobEvent.objects.filter(job=job).order_by("seq"),
        SlotClaim.objects.filter(job=job).order_by("pk"),
        AuditEntry.objects.filter(kind="job", key=str(job)).order_by("pk"),
        Topic.objects.filter(name=f"job.{job}"),
    )


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A moment becomes whether there is one."""
    return {name: isinstance(value, datetime) or value for name, value in row.items() if name not in _OWN}


def test_many_are_cancelled_as_each_would_be(cluster: Cluster, submit: Submit, carol: User) -> None:
    first, second = two_of_each_kind(cluster, submit)
    assert set(Job.objects.filter(pk__in=first).values_list("state", flat=True)) == {
        JobState.RUNNING, JobState.STARTING, JobState.PREEMPTING, JobState.PENDING, JobState.SUSPENDED,
    }  # fmt: skip
    assert_alike(first, second)

    for job in first:
        actions.cancel(job, "carol")
    outcome = cancel_many(second, carol)

    assert (outcome.done, outcome.refused) == (second, [])
    assert_alike(first, second)
    cluster.settle()
    assert set(Job.objects.values_list("state", flat=True)) == {JobState.CANCELLED}
    assert_alike(first, second)


def test_priorities_of_many_change_and_come_back_as_each_would(
    cluster: Cluster, submit: Submit, alice: User, carol: User
) -> None:
    first, second = two_of_each_kind(cluster, submit)

    events = {job: actions.change_job(job, actions.JobChange(priority=9000), "carol") for job in first}
    changed = change_priority_of_many(second, 9000, carol)

    assert [len(seqs) for seqs in changed.changes.values()] == [len(told) for told in events.values()] == [1] * 6
    assert_alike(first, second)
    for job, told in events.items():
        actions.undo_changes(job, [event.seq for event in told], "alice")
    undone = undo_many(changed.changes, alice)
    assert undone.done == second
    assert_alike(first, second)
    assert sorted(Job.objects.filter(pk__in=second).values_list("priority", flat=True)) == [4000, *[5000] * 5]


def cost_of(act: Callable[[list[int]], Any], jobs: list[int]) -> int:
    with CaptureQueriesContext(connection) as queries:
        outcome = act(jobs)
    assert outcome.done == jobs
    return len(queries)


@pytest.fixture
def make(alice: User) -> Callable[[int], list[int]]:
    host_with_slots()
    shared = JobFactory(owner=alice)
    same = {"owner": alice, "model": shared.model, "dataset": shared.dataset, "instance_group": shared.instance_group}

    def make(count: int) -> list[int]:
        jobs = [
            JobFactory(state=JobState.SUSPENDED if number % 3 == 0 else JobState.PENDING, priority=100 + number, **same)
            for number in range(count)
        ]
        return [job.pk for job in jobs]

    return make


def test_a_hundred_are_cancelled_by_as_many_queries_as_ten(make: Callable[[int], list[int]], carol: User) -> None:
    ten, hundred = make(10), make(100)
    hold(CLUSTER)

    costs = [cost_of(lambda jobs: cancel_many(jobs, carol), jobs) for jobs in (ten, hundred)]

    assert costs[0] == costs[1]
    assert not Job.objects.filter(pk__in=[*ten, *hundred]).exclude(state=JobState.CANCELLED).exists()


def test_a_hundred_get_a_priority_by_as_many_queries_as_ten(make: Callable[[int], list[int]], carol: User) -> None:
    ten, hundred = make(10), make(100)
    changes = [change_priority_of_many(jobs, 5000, carol).changes for jobs in (make(10), make(100))]

    costs = [cost_of(lambda jobs: change_priority_of_many(jobs, 5000, carol), jobs) for jobs in (ten, hundred)]

    assert costs[0] == costs[1]
    costs = [cost_of(lambda jobs, told=told: undo_many(told, carol), list(told)) for told in changes]
    assert costs[0] == costs[1]
    assert sorted(Job.objects.filter(pk__in=changes[1]).values_list("priority", flat=True)) == [*range(100, 200)]


def test_many_tell_each_topic_once_and_wake_the_scheduler_once(
    make: Callable[[int], list[int]],
    alice: User,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
) -> None:
    events: list[Event] = []
    woken: list[None] = []
    monkeypatch.setattr("core.live._send", lambda sent: events.extend(event for event, _ in sent))
    monkeypatch.setattr("jobs.control.dispatch._send_wake_up", lambda: woken.append(None))
    jobs = make(20)

    with django_capture_on_commit_callbacks(execute=True):
        cancel_many(jobs, alice)

    assert len(woken) == 1
    [shared] = [event for event in events if event.topic == CLUSTER]
    assert set(shared.data["jobs"]) == {str(job) for job in jobs}
    assert sorted((job_of_topic(event.topic), event.kind) for event in events if event is not shared) == sorted(
        (job, kind) for job in jobs for kind in ("append", "state")
    )
