"""Measurement of the room that jobs' folders take on the disk, job by job. Nothing is deleted."""

from collections.abc import Callable
from datetime import datetime, timedelta

from django.db.models import F, Q, QuerySet
from tidepool.scratch_watch import sizes_below

from jobs.files.job_folder import job_folder
from jobs.models import DiskUse, Job

__all__ = ["due", "measure"]

#: Age of a measurement from which the job is measured again: while it is not over, and once it is, because users remove
#: files.
_WHILE_OPEN, _LATER = timedelta(minutes=10), timedelta(days=1)
#: Number of files between two looks whether to stop.
_FILES_AT_ONCE = 1000


def due(now: datetime) -> QuerySet[Job]:
    """Return the jobs to measure: those never measured first, then those measured longest ago."""
    before = "disk_use__measured_at"
    wanted = (
        Q(disk_use__isnull=True)
        | Q(finished_at__isnull=True, **{f"{before}__lt": now - _WHILE_OPEN})
        | Q(finished_at__gt=F(before))
        | Q(**{f"{before}__lt": now - _LATER})
    )
    return Job.objects.filter(wanted).order_by(F(before).asc(nulls_first=True), "pk")


def measure(job: Job, now: datetime, is_to_stop: Callable[[], bool]) -> bool:
    """Measure the job's folder and store its size; return False if it was stopped."""
    total = 0
    for number, size in enumerate(sizes_below(str(job_folder(job).path)), 1):
        total += size
        if number % _FILES_AT_ONCE == 0 and is_to_stop():
            return False
    DiskUse.objects.update_or_create(job=job, defaults={"size_bytes": total, "measured_at": now})
    return True
