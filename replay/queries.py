"""Queries about replays of the past, and about the windows that can be replayed."""

from datetime import datetime

from django.db.models import Q, QuerySet

from core.errors import NotFound
from jobs.models import Job
from replay.models import Replay

__all__ = ["find_replay", "jobs_between", "replays"]


def jobs_between(start: datetime, end: datetime) -> QuerySet[Job]:
    """Trainings that came before the end and were not over at the start."""
    return Job.objects.filter(submitted_at__lt=end).filter(Q(finished_at=None) | Q(finished_at__gt=start)).order_by()


def replays() -> QuerySet[Replay]:
    """The newest first, without what they have of each training, which may be much."""
    return Replay.objects.select_related("owner").defer("jobs", "moments").order_by("-id")


def find_replay(number: int) -> Replay:
    found = replays().filter(pk=number).first()
    if found is None:
        raise NotFound(f"There is no replay {number}: it was removed, or too old to be kept.")
    return found
