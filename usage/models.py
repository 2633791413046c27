"""Rows of the usage page: sums of claims that are added up once, and prices."""

from django.db import models
from django.db.models import Q

__all__ = ["GpuPrice", "UsageBucket", "UsageMark", "UsageName"]


class UsageName(models.Model):
    """A host or a GPU model that usage was counted for. It stays when the host is gone."""

    name = models.CharField(max_length=128, unique=True)


class UsageBucket(models.Model):
    """Time that somebody or something held GPUs of one model within an hour or a day: the claims, added up."""

    class Dimension(models.IntegerChoices):
        USER = 1
        GROUP = 2
        JOB = 3
        HOST = 4
        GPU_MODEL = 5
        #: What the pool had, held or not; of GPU model "".
        CAPACITY = 6

    #: 1 or 24.
    hours = models.PositiveSmallIntegerField()
    #: When it begins: hours since 1970, in UTC.
    start_hour = models.PositiveIntegerField()
    dimension = models.PositiveSmallIntegerField(choices=Dimension)
    #: The number of the user, group or job; of a host or GPU model that of its `UsageName`; 0 for the capacity.
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
    """The one row that says how far claims are added up. Whoever adds up locks it."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    #: Hours since 1970: sums begin with the first, are complete up to `until_hour`; those of hours, not of days, are
    #: kept from `hours_from` on.
    from_hour = models.PositiveIntegerField()
    hours_from = models.PositiveIntegerField()
    until_hour = models.PositiveIntegerField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="usage_mark_single_row")]


class GpuPrice(models.Model):
    """Price of an hour of a GPU from a day on (in UTC), until the next price of the same model."""

    gpu_model = models.CharField(max_length=128)
    valid_from = models.DateField()
    per_hour = models.DecimalField(max_digits=12, decimal_places=4)

    class Meta:
        ordering = ["gpu_model", "valid_from"]
        constraints = [
            models.UniqueConstraint(fields=["gpu_model", "valid_from"], name="gpu_price_once_per_day"),
            models.CheckConstraint(condition=Q(per_hour__gte=0), name="gpu_price_not_negative"),
        ]
