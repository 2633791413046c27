"""Old rows go, piece by piece, and nothing that anybody may still look at."""

from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.db import transaction
from django.utils import timezone

from core.live import publish
from core.models import Topic
from jobs.control import tidying
from jobs.control.dispatch import periodic_tasks
from jobs.control.metrics import store_steps
from jobs.control.tidying import tidy
from jobs.control.transition import lock_job
from jobs.models import AllocationPoint, Job, JobEvent, Journal
from jobs.topics import job_topic
from tests.factories import JobEventFactory, JobFactory, SlotFactory, set_job
from workers.models import GpuReading

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def ended(days_ago: float | None) -> Job:
    """Return a job that ended, with an event, a size, a journal and a live topic; None: it runs."""
    finished_at = None if days_ago is None else NOW - timedelta(days=days_ago)
    job = JobFactory(state="RUNNING" if days_ago is None else "SUCCEEDED", finished_at=finished_at)
    JobEventFactory(job=job, seq=99)
    AllocationPoint.objects.create(
        job=job, at=NOW, slots=1, attempt=1, generation=1, reason_code="STARTED", reason_params={}
    )
    Journal.objects.create(name=f"{job.pk}.1.metrics", job=job, host="a", number=7)
    publish(job_topic(job.pk), "state", {"step": 1})
    return job


def test_what_belongs_to_trainings_of_long_ago_goes() -> None:
    old, young, running = ended(401), ended(399), ended(None)
    tidy(NOW)
    for rows in (JobEvent.objects.all(), AllocationPoint.objects.all()):
        assert {row.job for row in rows} == {young, running}
    assert not Topic.objects.filter(name=job_topic(old.pk)).exists()
    assert Topic.objects.filter(name=job_topic(young.pk)).exists()
    assert Journal.objects.filter(job=old).exists(), "what a host sends late is still known"
    assert Job.objects.filter(pk=old.pk).exists()


def test_readings_and_sessions_go_by_their_age() -> None:
    for days in (6, 8):
        GpuReading.objects.create(slot=SlotFactory(), at=NOW - timedelta(days=days))
    for days in (-1, 1):
        Session.objects.create(session_key=f"key{days}", session_data="", expire_date=NOW + timedelta(days=days))
    tidy(NOW)
    assert GpuReading.objects.get().at == NOW - timedelta(days=6)
    assert Session.objects.get().session_key == "key1"


def test_many_rows_go_in_pieces_and_the_rest_another_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidying, "_ROWS_AT_ONCE", 2)
    job = ended(500)
    for seq in range(5):
        JobEventFactory(job=job, seq=seq)
    assert tidy(NOW, budget_seconds=0.0)["events of trainings"] == 0
    assert tidy(NOW)["events of trainings"] == 6


def test_the_command_says_what_it_deleted() -> None:
    ended(500)
    said = StringIO()
    call_command("tidy", stdout=said)
    assert said.getvalue().startswith("Deleted 1 events of trainings, 1 sizes of trainings")
    said = StringIO()
    call_command("tidy", stdout=said)
    assert said.getvalue() == "There was nothing to delete.\n"


def test_the_scheduler_asks_for_it_once_an_hour() -> None:
    assert [task.every_seconds for task in periodic_tasks() if task.name == "jobs.tasks.tidy"] == [3600.0]


@pytest.mark.parametrize(("days", "most"), [(29, 1200), (31, 500)])
def test_curves_of_a_month_ago_keep_few_points(days: float, most: int) -> None:
    job = JobFactory(state="RUNNING")
    place = {"epoch": 0, "cursor": 0, "samples": 1, "world_size": 1, "generation": 1, "attempt": 1, "at": 1.0}
    with transaction.atomic():
        store_steps(lock_job(job.pk), [{**place, "step": step, "loss": 1 / step} for step in range(1, 1201)])
    set_job(job, state="SUCCEEDED", finished_at=NOW - timedelta(days=days))
    deleted = tidy(NOW)["points of curves"]
    losses = list(job.metrics.order_by("step").values_list("step", "value"))
    assert len(losses) == 1200 - deleted <= most
    assert (losses[0], losses[-1]) == ((1, 1.0), (1200, 1 / 1200))
    assert Job.objects.get(pk=job.pk).run.series["loss"][1] == len(losses)
    assert tidy(NOW)["points of curves"] == 0, "nothing is left to do"
