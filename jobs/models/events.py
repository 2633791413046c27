"""The history of a job."""

from __future__ import annotations

from django.db import models

from jobs.messages import text_of
from jobs.models.choices import choices
from jobs.models.jobs import Job
from jobs.states import Reason
from scheduling.plan import PlanReason

__all__ = ["JobEvent"]


class JobEvent(models.Model):
    """What happened to a job, append-only; its state equals the fold of its events."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="events")
    seq = models.PositiveIntegerField()
    #: Equal where the state did not change.
    old = models.CharField(max_length=16, blank=True)
    new = models.CharField(max_length=16)
    reason = models.CharField(max_length=32, choices=choices(Reason, PlanReason))
    #: Params of its sentence, and more.
    detail = models.JSONField(default=dict)
    #: User name, or "scheduler", "executor", "system".
    actor = models.CharField(max_length=150)
    at = models.DateTimeField()

    class Meta:
        ordering = ["job", "seq"]
        constraints = [models.UniqueConstraint(fields=["job", "seq"], name="job_event_once")]

    @property
    def text(self) -> str:
        return text_of(self.detail)
