"""Tests of the cost of a stop: the last save of a training, in its row and the scheduler's snapshot."""

import os
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.utils import timezone
from tidepool.safe_open import remove_below

from jobs.control.checkpoints import MARKER
from jobs.control.dispatch import PeriodicTask, periodic_tasks
from jobs.control.snapshots import snapshot
from jobs.files.job_folder import job_folder
from jobs.management.commands import run_scheduler
from jobs.models import Job, SlotClaim
from jobs.tasks import note_saves
from models_registry.models import RegisteredModelVersion
from scheduling.snapshot import JobView
from tests.deep_folders import make_deep
from tests.jobs.cluster import Cluster, moment
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db


def view(job: Job) -> JobView:
    return next(one for one in snapshot(timezone.now()).jobs if one.id == job.pk)


def folder(job: Job) -> Path:
    return job_folder(job).attempt(Job.objects.get(pk=job.pk).run.attempt) / "checkpoint"


def saved(job: Job, name: str, at: float) -> None:
    path = folder(job) / name
    path.write_text("weights")
    os.utime(path, (at, at))


def claimed(job: Job) -> list[float]:
    return [claim.claimed_at.timestamp() for claim in SlotClaim.objects.filter(job=job)]


def test_an_elastic_training_loses_what_it_computed_since_its_checkpoint(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=2)
    assert (view(job).unsaved_since, view(job).continues) == (None, True)
    cluster.turn()
    cluster.train(job)
    assert view(job).unsaved_since == pytest.approx(sum(claimed(job)) / 2)
    at = moment() + 60
    path = folder(job) / "step-5"
    path.mkdir(parents=True)
    lead = cluster.hosts[Job.objects.get(pk=job.pk).run.lead_host]
    told = {"step": 5, "epoch": 0, "path": str(path), "size_bytes": 3, "sha256": "0" * 64, "at": at}
    lead.write(Job.objects.get(pk=job.pk), "coordinator", "checkpoint", **told)
    lead.send()
    assert view(job).unsaved_since == pytest.approx(at)
    assert view(job).loses(2, at + 30) == pytest.approx(60)
    job.checkpoints.update(problem="a digest differs")
    told = {"step": 0, "epoch": 0, "used": "", "unusable": []}
    lead.write(Job.objects.get(pk=job.pk), "coordinator", "restored", **told)
    lead.send()
    assert view(job).unsaved_since == pytest.approx(sum(claimed(job)) / 2)


@pytest.mark.parametrize("marked", [True, False])
def test_a_plain_script_loses_what_it_computed_since_its_newest_file(
    cluster: Cluster, submit: Submit, code: RegisteredModelVersion, *, marked: bool
) -> None:
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine=RegisteredModelVersion.Engine.FIXED)
    job = submit(max_slots=2)
    cluster.turn()
    cluster.train(job, plain=True)
    since = pytest.approx(sum(claimed(job)) / 2)
    assert (view(job).unsaved_since, view(job).continues) == (since, False)
    if marked:
        (folder(job) / MARKER).touch()
    note_saves()
    assert (view(job).unsaved_since, view(job).continues) == (since, False), "nothing is saved yet"
    at = round(time.time(), 3)
    saved(job, "newest.pt", at)
    saved(job, "older.pt", at - 50)
    note_saves()
    noted = (at, True) if marked else (since, False)
    assert (view(job).unsaved_since, view(job).continues) == (pytest.approx(noted[0]), noted[1])
    assert Job.objects.get(pk=job.pk).run.saved_at == (datetime.fromtimestamp(at, UTC) if marked else None)


def test_what_a_script_makes_of_its_folder_keeps_no_other_waiting(
    cluster: Cluster, submit: Submit, code: RegisteredModelVersion
) -> None:
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine=RegisteredModelVersion.Engine.FIXED)
    odd, linked, other = (submit(max_slots=1) for _ in range(3))
    cluster.turn()
    for job in (odd, linked, other):
        cluster.train(job, plain=True)
    (folder(odd) / MARKER).touch()
    (folder(odd) / "gone").symlink_to("/nowhere")
    make_deep(folder(odd))
    folder(linked).rmdir()
    folder(linked).symlink_to("/")
    (folder(other) / MARKER).touch()
    at = round(time.time(), 3)
    saved(other, "newest.pt", at)
    note_saves()
    assert Job.objects.get(pk=other.pk).run.saved_at == datetime.fromtimestamp(at, UTC)
    assert Job.objects.get(pk=linked.pk).run.saved_at is None
    remove_below(folder(odd).parent, ["checkpoint"])


def test_the_scheduler_asks_twice_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(PeriodicTask, "send", lambda task: sent.append(task.name))
    scheduler = run_scheduler.Scheduler(threading.Event())
    scheduler.cycle()
    scheduler.cycle()
    assert sent.count("jobs.tasks.note_saves") == 1
    [task] = [task for task in periodic_tasks() if task.name == "jobs.tasks.note_saves"]
    assert task.every_seconds == 30
