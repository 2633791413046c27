"""After a restore: nothing that hosts or folders know of is mistaken for something newer."""

import json
import shutil
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from jobs import actions
from jobs.control.checkpoints import catch_up_with_folders
from jobs.files.job_folder import job_folder
from jobs.models import Checkpoint, Job, JobEvent, SchedulerLease, SlotClaim
from jobs.states import JobState
from tests.jobs.cluster import Cluster
from workers.join_tokens import create_join_token
from workers.models import Host, JoinToken

pytestmark = pytest.mark.django_db


def leave_attempt(job: Job, number: int, *steps: int, gone: tuple[int, ...] = ()) -> None:
    """Leave the folder of an attempt that this database never heard of."""
    folder = job_folder(Job.objects.select_related("owner", "model__model").get(pk=job.pk))
    folder.start_attempt(number)
    place = folder.attempt(number)
    lines: list[dict[str, Any]] = [
        {"number": 1, "kind": "rank_joined", "data": {"member_id": "x", "host": "a", "slot": 0, "at": 1.8e9}}
    ]
    for step in steps:
        path = place / f"checkpoint/step-{step}"
        if step not in gone:
            path.mkdir(parents=True)
        data = {"step": step, "epoch": 1, "path": str(path), "size_bytes": 7, "sha256": "a" * 64, "at": 1.8e9}
        lines.append({"number": len(lines) + 1, "kind": "checkpoint", "data": data})
    (place / "plans.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"torn')


def restored(**changes: Any) -> None:
    SchedulerLease.objects.update(expires_at=None)
    call_command("after_restore", stdout=StringIO(), **changes)


def test_what_ran_waits_and_continues_above_what_the_folder_knows(cluster: Cluster, submit):
    job = submit()
    cluster.turn()
    cluster.train(job)
    leave_attempt(job, 1, 40, 80, gone=(40,))
    leave_attempt(job, 2, 120)
    restored()

    job.refresh_from_db()
    assert (job.state, job.run.attempt) == (JobState.PENDING, 2)
    assert not SlotClaim.objects.filter(released_at__isnull=True).exists()
    assert set(Host.objects.values_list("state", flat=True)) == {Host.State.OFFLINE}
    assert list(Checkpoint.objects.values_list("attempt", "step").order_by("step")) == [(1, 80), (2, 120)]
    assert Checkpoint.objects.get(step=120).path == "attempt-2/checkpoint/step-120"

    # The hosts, whose executors lived on, first end what the database does not know.
    cluster.settle()
    cluster.turn(2)
    job.refresh_from_db()
    assert (job.state, job.run.attempt, job.run.step) == (JobState.STARTING, 3, 120)
    assert {rank.attempt for rank in cluster.ranks(job)} == {3}


def test_what_an_unknown_life_wrote_until_it_was_ended_counts_too(cluster: Cluster, submit):
    """The job trained on after `after_restore` had looked, and removed the checkpoint found."""
    job = submit()
    cluster.turn()
    cluster.train(job)
    leave_attempt(job, 2, 120)
    restored()
    shutil.rmtree(job_folder(job).path / "attempt-2")
    leave_attempt(job, 2, 120, 160, 200, gone=(120,))
    cluster.settle()
    cluster.turn(2)
    job.refresh_from_db()
    assert (job.state, job.run.attempt, job.run.step) == (JobState.STARTING, 3, 200)
    assert list(Checkpoint.objects.values_list("step", flat=True).order_by("step")) == [160, 200]


def test_executors_that_know_a_newer_desired_follow_the_restored_database(cluster: Cluster, submit):
    job = submit()
    cluster.turn()
    cluster.train(job)
    for host in cluster.hosts.values():
        host.applied = 900  # desired states of a time that the database has forgotten
    restored()
    cluster.settle()
    assert {host.state for host in Host.objects.all()} == {Host.State.ONLINE}
    assert min(Host.objects.values_list("desired_revision", flat=True)) > 900
    assert cluster.ranks(job) == []
    cluster.turn()
    assert len(cluster.ranks(job)) == 8


def test_ranks_of_a_job_that_the_backup_does_not_know_are_ended(cluster: Cluster, submit):
    unknown = submit(name="submitted after the backup")
    cluster.turn()
    cluster.train(unknown)
    number, folder = unknown.pk, Path(job_folder(unknown).path)
    SlotClaim.objects.all().delete()
    Job.objects.all().delete()
    restored()
    cluster.settle()
    assert not any(host.ranks for host in cluster.hosts.values())
    assert submit(name="new").pk > number
    assert folder.is_dir(), "what it left stays where it is"


def test_a_database_that_knows_all_is_left_alone(cluster: Cluster, submit):
    waiting, held = submit(), submit(name="held")
    actions.suspend(held.pk, "alice")
    before = list(Job.objects.values()), JobEvent.objects.count()
    assert catch_up_with_folders() == 0
    assert (list(Job.objects.values()), JobEvent.objects.count()) == before
    assert submit(name="next").pk == max(waiting.pk, held.pk) + 1


def test_folders_that_are_no_jobs_are_no_numbers(cluster: Cluster, submit, home: Path):
    job = submit()
    replaced = job.pk + 99
    for name in (".new-12", f"{replaced}.replaced-ab", "notes", "12345678901234567890"):
        (home / "results/alice/batchworkdir" / name).mkdir()
    hostile = home / "results" / str(replaced + 99) / "batchworkdir"
    hostile.mkdir(parents=True)
    (hostile / f"{replaced + 99}.x-1767268800000000000-7").symlink_to("7/current")
    catch_up_with_folders()
    assert submit(name="next").pk == replaced + 1


def test_the_numbers_go_on_in_an_empty_database(db: None, home: Path):
    (home / "results/alice/batchworkdir/41").mkdir(parents=True)
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = 'jobs_job'")
    catch_up_with_folders()
    with connection.cursor() as cursor:
        place = "sqlite_sequence WHERE name = 'jobs_job'" if connection.vendor == "sqlite" else "jobs_job_id_seq"
        cursor.execute(f"SELECT * FROM {place}")
        assert 41 in cursor.fetchone()


def test_what_may_have_been_withdrawn_since_is_withdrawn(cluster: Cluster, carol):
    create_join_token(carol)
    Session.objects.create(session_key="x", session_data="", expire_date=timezone.now() + timedelta(days=1))
    restored()
    assert not JoinToken.objects.exists()
    assert not Session.objects.exists()


def test_it_is_refused_while_a_scheduler_leads(cluster: Cluster, submit):
    submit()
    cluster.turn()
    SchedulerLease.objects.update(expires_at=timezone.now() + timedelta(seconds=3))
    with pytest.raises(CommandError, match="stop web, scheduler"):
        call_command("after_restore", stdout=StringIO())
    assert Job.objects.get().state == JobState.STARTING
