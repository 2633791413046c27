"""Changes of priority and most GPUs, and their undoing."""

import pytest
from django.utils import timezone

from core.errors import NotFound
from jobs.actions import JobChange, change_job, undo_changes
from jobs.control.transition import StaleJob
from jobs.models import Job, JobEvent
from jobs.permissions import Refusal, Refused
from jobs.queries.jobs import undoable_changes
from jobs.states import JobState, Reason
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db


def newest(job: Job) -> JobEvent:
    return JobEvent.objects.filter(job=job).order_by("-seq")[0]


def test_an_undone_change_restores_the_former_value_and_says_so(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    change_job(job.pk, JobChange(priority=9000, max_slots=4), "alice")
    limit, priority = JobEvent.objects.filter(job=job).order_by("-seq")[:2]
    assert {name: limit.detail[name] for name in ("by", "field", "old", "new")} == {
        "by": "alice",
        "field": "max_slots",
        "old": 8,
        "new": 4,
    }
    undo_changes(job.pk, [priority.seq], "carol")
    assert Job.objects.get(pk=job.pk).priority == 5000
    job.refresh_from_db()
    assert (job.priority, job.max_slots) == (5000, 4)
    event = newest(job)
    assert (event.actor, event.reason) == ("carol", Reason.PRIORITY_CHANGED)
    assert {name: event.detail[name] for name in ("old", "new", "undoes")} == {
        "old": 9000,
        "new": 5000,
        "undoes": priority.seq,
    }
    undo_changes(job.pk, [limit.seq], "alice")
    assert Job.objects.get(pk=job.pk).max_slots == 8


def test_what_was_changed_again_since_is_not_undone(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    change_job(job.pk, JobChange(priority=9000), "alice")
    first = newest(job)
    change_job(job.pk, JobChange(max_slots=4), "alice")
    change_job(job.pk, JobChange(priority=100), "carol")
    with pytest.raises(StaleJob, match="by carol, to 100"):
        undo_changes(job.pk, [first.seq], "alice")
    job.refresh_from_db()
    assert job.priority == 100


def test_an_undoing_can_be_undone(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    change_job(job.pk, JobChange(max_slots=2), "alice")
    undo_changes(job.pk, [newest(job).seq], "alice")
    undo_changes(job.pk, [newest(job).seq], "alice")
    assert Job.objects.get(pk=job.pk).max_slots == 2


def test_other_events_have_nothing_to_undo(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    for seq in (1, 99):
        with pytest.raises(NotFound, match="nothing to undo"):
            undo_changes(job.pk, [seq], "alice")


def test_it_is_too_late_once_the_job_is_over(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    change_job(job.pk, JobChange(priority=9000), "alice")
    Job.objects.filter(pk=job.pk).update(state=JobState.CANCELLED, finished_at=timezone.now())
    with pytest.raises(Refused) as refused:
        undo_changes(job.pk, [newest(job).seq], "alice")
    assert refused.value.why == Refusal.OVER


def test_a_change_to_what_it_is_writes_nothing(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    change_job(job.pk, JobChange(priority=job.priority, max_slots=job.max_slots), "alice")
    assert JobEvent.objects.filter(job=job).count() == 1


def test_a_changed_minimum_is_undone(cluster: Cluster, submit: Submit) -> None:
    job = submit(min_slots=4)
    change_job(job.pk, JobChange(min_slots=2), "alice")
    [change] = undoable_changes(Job.objects.get(pk=job.pk))
    assert (change.detail["field"], change.detail["old"], change.detail["new"]) == ("min_slots", 4, 2)

    undo_changes(job.pk, [newest(job).seq], "carol")
    assert Job.objects.get(pk=job.pk).min_slots == 4
    assert newest(job).detail["undoes"] == change.seq


def test_minimum_and_maximum_are_undone_as_one(cluster: Cluster, submit: Submit) -> None:
    """One after the other, the minimum would be above the maximum in between."""
    job = submit(min_slots=6, max_slots=8)
    events = change_job(job.pk, JobChange(min_slots=2, max_slots=4), "alice")

    undone = undo_changes(job.pk, [event.seq for event in events], "alice")

    job.refresh_from_db()
    assert (job.min_slots, job.max_slots) == (6, 8)
    assert [event.detail["undoes"] for event in undone] == [event.seq for event in events]


def test_a_later_change_of_the_maximum_leaves_that_of_the_minimum_undoable(cluster: Cluster, submit: Submit) -> None:
    job = submit(min_slots=4)
    change_job(job.pk, JobChange(min_slots=2), "alice")
    minimum = newest(job)
    change_job(job.pk, JobChange(max_slots=6), "carol")

    undo_changes(job.pk, [minimum.seq], "alice")
    assert Job.objects.get(pk=job.pk).min_slots == 4


def test_the_minimum_of_a_job_that_has_started_is_not_offered(cluster: Cluster, submit: Submit) -> None:
    job = submit(min_slots=4)
    change_job(job.pk, JobChange(min_slots=2), "alice")
    cluster.turn()
    job.refresh_from_db()

    assert undoable_changes(job) == []
    with pytest.raises(Refused) as refused:
        undo_changes(job.pk, [JobEvent.objects.get(job=job, detail__field="min_slots").seq], "alice")
    assert refused.value.why == Refusal.STARTED


def test_nothing_is_undone_by_no_event(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    assert undo_changes(job.pk, [], "alice") == []
    assert JobEvent.objects.filter(job=job).count() == 1
