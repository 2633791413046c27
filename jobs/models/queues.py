"""Queues of instance groups, as the scheduler's newest plan serves them."""

from typing import NamedTuple

from django.db import models

from jobs.models.jobs import InstanceGroup

__all__ = ["GroupQueue", "QueuedJob"]


class QueuedJob(NamedTuple):
    """A waiting job in its group's queue, and between which moments (Unix seconds) it starts, if nobody else comes."""

    job: int
    #: None: nobody can say when it starts.
    earliest: int | None
    #: None: the wait may have no end that can be told.
    latest: int | None


class GroupQueue(models.Model):
    """The waiting jobs of an instance group, in the order of service. Written by the scheduler's leader alone.

    One row for a whole queue: when its first job starts, all others move up, and a row for each would be written anew.
    """

    group = models.OneToOneField(InstanceGroup, on_delete=models.CASCADE, primary_key=True, related_name="queue")
    #: The fields of a `QueuedJob` for each.
    jobs = models.JSONField()

    def queued(self) -> list[QueuedJob]:
        return [QueuedJob(*fields) for fields in self.jobs]
