"""Queue of each instance group according to the scheduler's newest plan."""

from typing import NamedTuple

from django.db import models

from jobs.models.jobs import InstanceGroup

__all__ = ["GroupQueue", "QueuedJob"]


class QueuedJob(NamedTuple):
    """A waiting job, with the bounds of its start as Unix seconds, assuming that no further jobs are submitted."""

    job: int
    #: Earliest start; None: it cannot be predicted.
    earliest: int | None
    #: Latest start; None: it has no known bound.
    latest: int | None


class GroupQueue(models.Model):
    """The waiting jobs of an instance group in the order of service. Only the leading scheduler writes the row.

    One row holds the whole queue: when the first job starts, all others move up, which would rewrite a row for each.
    """

    group = models.OneToOneField(InstanceGroup, on_delete=models.CASCADE, primary_key=True, related_name="queue")
    #: List of the fields of a `QueuedJob`.
    jobs = models.JSONField()

    def queued(self) -> list[QueuedJob]:
        return [QueuedJob(*fields) for fields in self.jobs]
