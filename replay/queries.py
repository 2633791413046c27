"""Queries for replays, and for the trainings of a period."""

from datetime import datetime

from django.db.models import Q, QuerySet

from core.errors import NotFound
from jobs.models import Job
from replay.control import KEPT
from replay.models import Replay

__all__ = ["find_replay", "jobs_between", "replays"]


def jobs_between(start: datetime, end: datetime) -> QuerySet[Job]:
    """Return the trainings that were submitted before the end, and had not finished at the start."""
    return Job.objects.filter(submitted_at__lt=end).filter(Q(finished_at=None) | Q(finished_at__gt=start)).order_by()


def replays() -> QuerySet[Replay]:
    """Return all replays, newest first, without their large columns."""
    return Replay.objects.select_related("owner").defer("jobs", "moments").order_by("-id")


def find_replay(number: int) -> Replay:
    found = replays().filter(pk=number).first()
    if found is None:
        raise NotFound(f"Replay {number} not found: it may have been removed. Replays are kept for {KEPT.days} days.")
    return found
