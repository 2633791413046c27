"""Previews over the database: what they say comes true, in whose words, and that they write nothing."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from insights.previews import preview_change, preview_submission
from jobs.actions import InvalidSubmission, JobChange, Submission, change_job, suspend
from jobs.management.commands.run_scheduler import Scheduler
from jobs.models import AllocationPoint, Job, JobEvent, SchedulerLease, SlotClaim, Validation
from jobs.permissions import Refused
from jobs.states import JobState
from tests.factories import JobFactory, set_job
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db


def cycle() -> None:
    """The real scheduler's."""
    SchedulerLease.objects.all().delete()
    Scheduler(threading.Event()).cycle()


def rows() -> dict[str, int]:
    return {model.__name__: model.objects.count() for model in (Job, JobEvent, SlotClaim)}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"max_slots": 8}, {"max_slots": 8}),
        ({"max_slots": 8, "priority": 1000}, {"max_slots": 4, "priority": 9000}),
        ({"max_slots": 8, "min_slots": 6}, {"max_slots": 8, "min_slots": 3}),
        ({"max_slots": 3}, {"max_slots": 8}),
    ],
)
def test_the_preview_of_a_submission_is_what_the_scheduler_then_does(
    cluster: Cluster, submit: Submit, alice: User, given: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    running = submit(**first)
    cluster.turn()
    before = rows()
    seen = preview_submission(Submission(**{**given, **second, "name": "T2"}), alice)
    assert rows() == before

    job = submit(**second, name="T2")
    cycle()
    job.refresh_from_db()
    running.refresh_from_db()
    assert (seen["target_slots"], seen["reason"]["text"]) == (job.run.target_slots, job.reason_text)
    assert seen["slots"] == SlotClaim.objects.filter(job=job).count()
    assert [other["target_slots"] for other in seen["others"]] in ([], [running.run.target_slots])


def test_the_preview_of_a_change_is_what_the_scheduler_then_does(cluster: Cluster, submit: Submit, alice: User) -> None:
    first, second = submit(name="t1"), submit(name="T2")
    for _ in range(4):
        cluster.turn()
    second.refresh_from_db()
    seen = preview_change(second, JobChange(priority=10_000), alice)
    assert (seen["before_slots"], seen["target_slots"]) == (4, 5)
    assert seen["others_text"] == "t1 shrinks from 4 to 3 GPUs."

    change_job(second.pk, JobChange(priority=10_000), "alice")
    cycle()
    second.refresh_from_db()
    first.refresh_from_db()
    assert (second.run.target_slots, first.run.target_slots) == (5, 3)
    assert second.reason_text == seen["reason"]["text"]


def test_trainings_of_others_are_not_named(
    cluster: Cluster, submit: Submit, bob: User, carol: User, given: dict[str, Any]
) -> None:
    submit()
    cluster.turn()
    seen = preview_submission(Submission(**given), bob)
    assert [(one["slots"], one["target_slots"], one["visible"]) for one in seen["others"]] == [(8, 4, False)]
    assert "T1" not in repr(seen)
    assert preview_submission(Submission(**given), carol)["others"][0]["name"] == "T1"


def test_what_cannot_be_submitted_has_no_preview(cluster: Cluster, alice: User, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidSubmission) as caught:
        preview_submission(Submission(**{**given, "max_slots": 99, "priority": 0}), alice)
    assert set(caught.value.fields) == {"max_slots", "priority"}


def test_a_held_back_job_changes_nothing_now(cluster: Cluster, submit: Submit, alice: User) -> None:
    job = submit()
    suspend(job.pk, "alice")
    job.refresh_from_db()
    assert "once it continues" in preview_change(job, JobChange(max_slots=2), alice)["start_text"]
    Job.objects.filter(pk=job.pk).update(state=JobState.CANCELLED, finished_at=timezone.now())
    job.refresh_from_db()
    with pytest.raises(Refused):
        preview_change(job, JobChange(max_slots=2), alice)


def ended(job: Job, seconds: int, slots: int, **changes: Any) -> Job:
    """A training like `job` that took so long on so many GPUs."""
    now = timezone.now()
    past = JobFactory(
        owner=job.owner,
        model=job.model,
        dataset=job.dataset,
        instance_group=job.instance_group,
        state=JobState.SUCCEEDED,
        finished_at=now,
        **changes,
    )
    for at, held in ((now - timedelta(seconds=seconds), slots), (now, 0)):
        AllocationPoint.objects.create(job=past, at=at, slots=held, attempt=1, generation=held, reason_code="X")
    return past


def test_earlier_trainings_tell_how_long_it_takes(
    cluster: Cluster, submit: Submit, alice: User, given: dict[str, Any]
) -> None:
    job = submit()
    cluster.turn()
    ended(job, 600, 8, parameters={"epochs": 2})
    ended(job, 660, 8, parameters={"epochs": 2})
    Validation.objects.create(job=ended(job, 5, 1, parameters={"epochs": 2}), trained=job)
    Job.objects.filter(pk=job.pk).update(state=JobState.CANCELLED, finished_at=timezone.now())
    SlotClaim.objects.all().delete()

    alone = preview_submission(Submission(**given), alice)
    assert alone["start_text"] == "The training starts at once."
    sentence = (
        "estimated from the last 2 trainings of this model on this dataset, unless other trainings are submitted."
    )
    assert alone["end_text"] in [
        f"The training ends in {span}, {sentence}" for span in ("10 to 11 min", "about 11 min")
    ]
    longer = preview_submission(Submission(**{**given, "parameters": {"epochs": 4}}), alice)
    assert longer["end"]["earliest_seconds"] == pytest.approx(1200, rel=0.01)
    assert longer["end"]["latest_seconds"] == pytest.approx(1320, rel=0.01)


def test_progress_tells_when_gpus_become_free(
    cluster: Cluster, submit: Submit, alice: User, given: dict[str, Any]
) -> None:
    first = submit(min_slots=8)
    cluster.turn()
    set_job(first, state=JobState.RUNNING, progress=0.5)
    started = timezone.now() - timedelta(seconds=300)
    AllocationPoint.objects.filter(job=first).delete()
    AllocationPoint.objects.create(job=first, at=started, slots=8, attempt=1, generation=1, reason_code="X")
    seen = preview_submission(Submission(**{**given, "min_slots": 8}), alice)
    assert seen["start"]["earliest_seconds"] == pytest.approx(300, rel=0.01)
    assert seen["start_text"] == "It starts in about 5 min, unless other trainings are submitted."
    assert seen["end_text"].startswith("The duration is not known")


def test_a_preview_takes_the_same_queries_for_any_number(
    cluster: Cluster, submit: Submit, alice: User, given: dict[str, Any], django_assert_max_num_queries: Any
) -> None:
    submit()
    cluster.turn()
    with django_assert_max_num_queries(24):
        preview_submission(Submission(**given), alice)
    for number in range(6):
        ended(submit(name=f"T{number}"), 60, 2)
    with django_assert_max_num_queries(24):
        preview_submission(Submission(**given), alice)
