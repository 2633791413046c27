"""Recovery of a database that is older than the folders and the hosts: no number may be used a second time.

An attempt's number names folders, journals and processes. One that a database restored from a backup does not know
any more may be in use on a host at this moment.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction
from tidepool.journal import read_journal
from tidepool.protocol import CheckpointPublished

from jobs.control.transition import change, lock_job
from jobs.files.folder import JobFolder, job_folder
from jobs.models import Checkpoint, Job
from jobs.states import JobState

__all__ = ["catch_up_with_folders", "look_for_newer_checkpoints"]

logger = logging.getLogger(__name__)

_WAITING = (JobState.PENDING, JobState.SUSPENDED)
_ATTEMPT = re.compile(r"attempt-(\d{1,9})")
_JOB = re.compile(r"(\d{1,15})(\..*)?")


def catch_up_with_folders() -> int:
    """Let jobs that wait begin above every attempt on disk, from the checkpoints there; the same for new jobs.

    Call it while nothing runs. Where the database is the newer one, nothing changes. Returns how many jobs it changed.
    """
    waiting = Job.objects.filter(state__in=_WAITING).order_by("pk").values_list("pk", flat=True)
    changed = sum(_catch_up(job_id) for job_id in waiting)
    _skip_numbers_up_to(max(_numbers_of_jobs(), default=0))
    return changed


def look_for_newer_checkpoints(job: Job) -> None:
    """Before a job goes on: where its newest checkpoint has gone, a life that was unknown here wrote newer ones.

    After a restore that life trains until its host is told to end it, and keeps only the last few of what it writes.
    """
    folder = job_folder(job)
    newest = Checkpoint.objects.filter(job=job).order_by("-step", "-attempt").first()
    if newest is None or (folder.path / newest.path).is_dir():
        return
    for attempt in sorted(_attempts(folder)):
        _recover(job, folder, attempt)
    for checkpoint in Checkpoint.objects.filter(job=job):
        if not (folder.path / checkpoint.path).is_dir():
            checkpoint.delete()


@transaction.atomic
def _catch_up(job_id: int) -> bool:
    job = lock_job(job_id)
    folder = job_folder(job)
    attempts = sorted(_attempts(folder))
    found = sum(_recover(job, folder, number) for number in attempts)
    newest = max([job.run.attempt, *attempts])
    is_behind = newest > job.run.attempt
    if is_behind:
        logger.warning("job=%s attempt=%s: its folder knows of %s", job.pk, job.run.attempt, newest)
        change(job, attempt=newest)
    return is_behind or found > 0


def _attempts(folder: JobFolder) -> Iterator[int]:
    if folder.path.is_dir():
        for entry in folder.path.iterdir():
            if match := _ATTEMPT.fullmatch(entry.name):
                yield int(match[1])


def _recover(job: Job, folder: JobFolder, attempt: int) -> int:
    """Checkpoints that the coordinator of an attempt published and the database has not heard of."""
    known = set(Checkpoint.objects.filter(job=job, attempt=attempt).values_list("step", flat=True))
    count = 0
    for written in read_journal(folder.attempt(attempt) / "plans.jsonl"):
        if not isinstance(written, CheckpointPublished) or written.step in known:
            continue
        path = folder.relative(attempt, written.path)
        if not (folder.path / path).is_dir():
            continue
        known.add(written.step)
        count += 1
        Checkpoint.objects.create(
            job=job,
            attempt=attempt,
            path=path,
            created_at=datetime.fromtimestamp(written.at, UTC),
            **{name: getattr(written, name) for name in ("step", "epoch", "size_bytes", "sha256")},
        )
    return count


def _numbers_of_jobs() -> Iterator[int]:
    for user in Path(settings.TIDEPOOL_RESULTS_ROOT).glob("*/batchworkdir"):
        for entry in user.iterdir():
            # A link has a user's name in its own, which may look like any number.
            if (match := _JOB.fullmatch(entry.name)) and not entry.is_symlink():
                yield int(match[1])


def _skip_numbers_up_to(number: int) -> None:
    """The next new job gets a higher one."""
    table = Job._meta.db_table
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(
                "INSERT INTO sqlite_sequence (name, seq) SELECT %s, 0 "
                "WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = %s)",
                [table, table],
            )
            cursor.execute("UPDATE sqlite_sequence SET seq = %s WHERE name = %s AND seq < %s", [number, table, number])
            return
        cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", [table])
        [sequence] = cursor.fetchone()
        cursor.execute(f"SELECT setval(%s, %s) FROM {sequence} WHERE last_value < %s", [sequence, number, number])  # noqa: S608
