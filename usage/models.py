"""Stored sums of claims by hour and day, and prices of GPU-hours."""

from django.db import models
from django.db.models import Q

__all__ = ["GpuPrice", "UsageBucket", "UsageMark", "UsageName"]


class UsageName(models.Model):
    """Name of a host or GPU model that has usage. The row stays after the host is removed."""

    name = models.CharField(max_length=128, unique=True)


class UsageBucket(models.Model):
    """GPU time of one subject and one GPU model within an hour or a day, in milliseconds."""

    class Dimension(models.IntegerChoices):
        USER = 1
        GROUP = 2
        JOB = 3
        HOST = 4
        GPU_MODEL = 5
        #: All GPUs in the pool, held or free; stored with the GPU model "".
        CAPACITY = 6

    #: Length of the bucket in hours: 1 or 24.
    hours = models.PositiveSmallIntegerField()
    #: Start of the bucket, in hours since 1970 (UTC).
    start_hour = models.PositiveIntegerField()
    dimension = models.PositiveSmallIntegerField(choices=Dimension)
    #: Id of the user, group, job, or of the `UsageName` of a host or GPU model; 0 for the capacity.
    subject = models.PositiveBigIntegerField()
    gpu_model = models.ForeignKey(UsageName, on_delete=models.PROTECT, related_name="+", db_index=False)
    held_ms = models.PositiveBigIntegerField()
    busy_ms = models.PositiveBigIntegerField(default=0)
    idle_ms = models.PositiveBigIntegerField(default=0)
    training_ms = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hours", "dimension", "start_hour", "subject", "gpu_model"],
                name="usage_bucket_once",
            ),
            models.CheckConstraint(condition=Q(hours__in=(1, 24)), name="usage_bucket_hour_or_day"),
        ]


class UsageMark(models.Model):
    """Range of the stored sums, in a single row that each rollup locks."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    #: First hour with sums, in hours since 1970, as the other two.
    from_hour = models.PositiveIntegerField()
    #: First hour whose hourly sums are still stored; earlier ones were deleted, and their daily sums kept.
    hours_from = models.PositiveIntegerField()
    #: End of the sums, exclusive.
    until_hour = models.PositiveIntegerField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="usage_mark_single_row")]


class GpuPrice(models.Model):
    """Price of a GPU-hour from a day on (UTC) until the next price of the same model."""

    gpu_model = models.CharField(max_length=128)
    valid_from = models.DateField()
    per_hour = models.DecimalField(max_digits=12, decimal_places=4)

    class Meta:
        ordering = ["gpu_model", "valid_from"]
        constraints = [
            models.UniqueConstraint(fields=["gpu_model", "valid_from"], name="gpu_price_once_per_day"),
            models.CheckConstraint(condition=Q(per_hour__gte=0), name="gpu_price_not_negative"),
        ]
