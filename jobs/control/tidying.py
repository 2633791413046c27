"""Deletion of rows that nobody looks at any more, and of most points of old curves.

The scheduler has it done once an hour; `manage.py tidy` at once. Journals of jobs that are over stay: they are why
entries that a host sends late are stored once.
"""

import logging
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from core.models import Topic
from jobs.control.series import ENDED_ROWS, thin_ended
from jobs.control.transition import change, lock_job
from jobs.models import AllocationPoint, Job, JobEvent, UnstoredEntry
from jobs.topics import JOB_PREFIX
from workers.models import GpuReading

__all__ = ["CURVES", "HISTORY", "READINGS", "tidy"]

logger = logging.getLogger(__name__)

#: Time after a job's end for which its events and its sizes over time are kept.
HISTORY = timedelta(days=400)
#: Time after a job's end for which its curves keep all their rows, and for which they are then looked for.
CURVES = timedelta(days=30)
_CURVES_UNTIL = timedelta(days=60)
#: Age of a GPU's newest reading from which it says nothing.
READINGS = timedelta(days=7)
_ROWS_AT_ONCE = 1000
_JOBS_AT_ONCE = 200


def tidy(now: datetime, *, budget_seconds: float = 5.0) -> dict[str, int]:
    """Delete old rows, and return how many of each kind. What the time budget leaves is for the next call."""
    deadline = time.monotonic() + budget_seconds
    is_over = Job.objects.filter(pk=OuterRef("job"), finished_at__lt=now - HISTORY)
    olds: dict[str, QuerySet[Any]] = {
        "events of trainings": JobEvent.objects.filter(Exists(is_over)),
        "sizes of trainings": AllocationPoint.objects.filter(Exists(is_over)),
        "journal entries that were set aside": UnstoredEntry.objects.filter(Exists(is_over)),
        "readings of GPUs": GpuReading.objects.filter(at__lt=now - READINGS),
        "sessions": Session.objects.filter(expire_date__lt=now),
    }
    deleted = {what: _delete(rows, deadline) for what, rows in olds.items()}
    deleted["live topics"] = _delete_topics(now, deadline)
    deleted["points of curves"] = _thin_curves(now, deadline)
    if any(deleted.values()):
        logger.info("deleted %s", ", ".join(f"{count} {what}" for what, count in deleted.items() if count))
    return deleted


def _delete(rows: QuerySet[Any], deadline: float) -> int:
    """Delete rows piece by piece, so that nobody waits for long."""
    return _repeat(
        lambda: rows.model._default_manager.filter(
            pk__in=[*rows.order_by("pk").values_list("pk", flat=True)[:_ROWS_AT_ONCE]]
        ).delete()[0],
        deadline,
    )


def _repeat(delete_some: Callable[[], int], deadline: float) -> int:
    total = 0
    while time.monotonic() < deadline and (count := delete_some()):
        total += count
    return total


def _thin_curves(now: datetime, deadline: float) -> int:
    """Thin curves of jobs that ended a month ago; `metrics.jsonl` in a job's folder keeps every step."""
    ended = Job.objects.filter(finished_at__range=(now - _CURVES_UNTIL, now - CURVES)).exclude(run__series={})
    total = 0
    for number, series in [*ended.order_by("finished_at").values_list("pk", "run__series")]:
        if time.monotonic() >= deadline:
            break
        if any(rows > ENDED_ROWS for _, rows in series.values()):
            total += _thin(number)
    return total


@transaction.atomic
def _thin(number: int) -> int:
    job = lock_job(number)
    before, series = job.run.series, thin_ended(job)
    change(job, series=series)
    return int(sum(rows for _, rows in before.values()) - sum(rows for _, rows in series.values()))


def _delete_topics(now: datetime, deadline: float) -> int:
    """Delete the numbers of jobs' live events; a page that is open for so long fetches anew."""
    names = (f"{JOB_PREFIX}{number}" for number in _numbers(now))
    total = 0
    for some in _pieces(names):
        if time.monotonic() >= deadline:
            break
        total += Topic.objects.filter(name__in=some).delete()[0]
    return total


def _numbers(now: datetime) -> Iterable[int]:
    return Job.objects.filter(finished_at__lt=now - HISTORY).order_by("-pk").values_list("pk", flat=True).iterator()


def _pieces(names: Iterable[str]) -> Iterable[list[str]]:
    piece: list[str] = []
    for name in names:
        piece.append(name)
        if len(piece) == _JOBS_AT_ONCE:
            yield piece
            piece = []
    if piece:
        yield piece
