"""Changes of priority and most GPUs, and their undoing."""

from __future__ import annotations

import pytest
from django.utils import timezone

from jobs.actions import StaleJob, Wish, change_wish, undo_change
from jobs.models import Job, JobEvent
from jobs.states import JobState, Reason
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from webapp.lib.errors import NotFound

pytestmark = pytest.mark.django_db


def newest(job: Job) -> JobEvent:
    return JobEvent.objects.filter(job=job).order_by("-seq")[0]


def test_an_undone_change_restores_the_former_value_and_says_so(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    change_wish(job.pk, Wish(priority=9000, max_slots=4), "alice")
    limit, priority = JobEvent.objects.filter(job=job).order_by("-seq")[:2]
    assert limit.text == "alice changes its GPUs from at most 8 to at most 4."
    assert undo_change(job.pk, priority.seq, "carol").priority == 5000
    job.refresh_from_db()
    assert (job.priority, job.max_slots) == (5000, 4)
    event = newest(job)
    assert (event.actor, event.reason) == ("carol", Reason.PRIORITY_CHANGED)
    assert {name: event.detail[name] for name in ("old", "new", "undoes")} == {
        "old": 9000,
        "new": 5000,
        "undoes": priority.seq,
    }
    assert event.text == "carol undoes a change: the priority goes from 9000 back to 5000."
    assert undo_change(job.pk, limit.seq, "alice").max_slots == 8


def test_what_was_changed_again_since_is_not_undone(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    change_wish(job.pk, Wish(priority=9000), "alice")
    first = newest(job)
    change_wish(job.pk, Wish(max_slots=4), "alice")
    change_wish(job.pk, Wish(priority=100), "carol")
    with pytest.raises(StaleJob, match="changed again since by carol, to 100"):
        undo_change(job.pk, first.seq, "alice")
    job.refresh_from_db()
    assert job.priority == 100


def test_an_undoing_can_be_undone(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    change_wish(job.pk, Wish(max_slots=2), "alice")
    undo_change(job.pk, newest(job).seq, "alice")
    assert undo_change(job.pk, newest(job).seq, "alice").max_slots == 2


def test_other_events_have_nothing_to_undo(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    for seq in (1, 99):
        with pytest.raises(NotFound, match="nothing to undo"):
            undo_change(job.pk, seq, "alice")


def test_it_is_too_late_once_the_job_is_over(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    change_wish(job.pk, Wish(priority=9000), "alice")
    Job.objects.filter(pk=job.pk).update(state=JobState.CANCELLED, finished_at=timezone.now())
    with pytest.raises(StaleJob, match="too late"):
        undo_change(job.pk, newest(job).seq, "alice")


def test_a_change_to_what_it_is_writes_nothing(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    change_wish(job.pk, Wish(priority=job.priority, max_slots=job.max_slots), "alice")
    assert JobEvent.objects.filter(job=job).count() == 1
