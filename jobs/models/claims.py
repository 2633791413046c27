"""Slots held by jobs."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from jobs.models.jobs import Job
from workers.models import Slot

__all__ = ["SlotClaim"]


class SlotClaim(models.Model):
    """A slot held by a job, until its process is gone."""

    slot = models.ForeignKey(Slot, on_delete=models.PROTECT, related_name="claims")
    #: What was used is never forgotten: a job that held a GPU is not deleted.
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="claims")
    #: What the slot was when it was claimed: another GPU may be put in its place.
    gpu_model = models.CharField(max_length=128, blank=True, default="")
    attempt = models.PositiveIntegerField()
    claimed_at = models.DateTimeField()
    #: Set when the job shall give it back; `vacate_revision` is the host's desired state revision that says so.
    vacating_at = models.DateTimeField(null=True, blank=True)
    vacate_revision = models.PositiveBigIntegerField(null=True, blank=True)
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["slot"], condition=Q(released_at__isnull=True), name="slot_held_by_one_job"
            ),
        ]
        indexes = [
            models.Index(fields=["job"], condition=Q(released_at__isnull=True), name="open_claims_of_job"),
            models.Index(fields=["claimed_at"], name="claims_by_start"),
            models.Index(fields=["released_at"], name="claims_by_end"),
        ]
