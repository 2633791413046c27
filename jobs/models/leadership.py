"""The lease of the leading scheduler."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

__all__ = ["SchedulerLease"]


class SchedulerLease(models.Model):
    """The one row that says who may write plans. Every plan is written with the epoch checked in its transaction."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    epoch = models.PositiveBigIntegerField(default=0)
    holder = models.CharField(max_length=255, blank=True, default="")
    expires_at = models.DateTimeField(null=True)
    #: When the newest plan was carried out, how many there were, and how long they took in all: for /metrics.
    decided_at = models.DateTimeField(null=True)
    cycles = models.PositiveBigIntegerField(default=0)
    cycles_seconds = models.FloatField(default=0)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="scheduler_lease_single_row")]
