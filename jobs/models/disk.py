"""Room that jobs take on the disk of the pool."""

from django.db import models
from django.db.models import Q

from jobs.models.jobs import Job

__all__ = ["DiskUse"]


class DiskUse(models.Model):
    """Room that a job's folder took when it was measured last: code, logs, results and checkpoints of all attempts."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="disk_use")
    #: Room on the disk, in bytes.
    size_bytes = models.BigIntegerField()
    measured_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(size_bytes__gte=0), name="disk_use_is_a_size")]
