"""Generations of a job, their ranks, and the series of world sizes made of them."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from jobs.messages import text_of
from jobs.models.choices import choices
from jobs.models.jobs import Job
from jobs.states import GenerationState, RankState, Reason
from scheduling.plan import PlanReason

__all__ = ["AllocationPoint", "Generation", "Rank"]


class Generation(models.Model):
    """One membership of a job's process group, as its coordinator reported it."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="generations")
    attempt = models.PositiveIntegerField()
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=choices(GenerationState), default=GenerationState.FORMING)
    world_size = models.PositiveIntegerField()
    #: [{"member_id", "rank", "host", "slot"}]
    members = models.JSONField(default=list)
    target_revision = models.PositiveIntegerField(default=0)
    planned_at = models.DateTimeField(null=True)
    active_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["job", "attempt", "number"]
        constraints = [
            models.UniqueConstraint(fields=["job", "attempt", "number"], name="generation_once"),
            models.UniqueConstraint(
                fields=["job"], condition=Q(state=GenerationState.ACTIVE), name="generation_one_active"
            ),
            models.UniqueConstraint(
                fields=["job"], condition=Q(state=GenerationState.FORMING), name="generation_one_forming"
            ),
        ]


class Rank(models.Model):
    """A training process, as its shim and coordinator reported it."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="ranks")
    attempt = models.PositiveIntegerField()
    member_id = models.CharField(max_length=128)
    host = models.CharField(max_length=64)
    slot = models.PositiveIntegerField()
    pid = models.PositiveIntegerField()
    #: Unix seconds, from the host's /proc.
    started_at = models.FloatField()
    state = models.CharField(max_length=16, choices=choices(RankState), default=RankState.LAUNCHING)
    #: Its number in the active generation, None outside of one.
    rank = models.PositiveIntegerField(null=True, blank=True)
    generation = models.PositiveIntegerField(default=0)
    #: {"code", "signal", "error"} once it has exited, or {}.
    exit = models.JSONField(default=dict)

    class Meta:
        ordering = ["job", "attempt", "id"]
        constraints = [models.UniqueConstraint(fields=["job", "attempt", "member_id"], name="rank_once")]


class AllocationPoint(models.Model):
    """The world size from a moment on: of the ACTIVE generation at the moment its ranks switched, never the target."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="allocation")
    at = models.DateTimeField()
    slots = models.PositiveIntegerField()
    attempt = models.PositiveIntegerField()
    generation = models.PositiveIntegerField()
    reason_code = models.CharField(max_length=32, choices=choices(Reason, PlanReason))
    reason_params = models.JSONField(default=dict)
    pause_ms = models.FloatField(null=True)

    class Meta:
        ordering = ["job", "at", "id"]
        constraints = [
            models.UniqueConstraint(fields=["job", "attempt", "generation", "slots"], name="allocation_once")
        ]
        indexes = [models.Index(fields=["at"], name="allocation_by_time")]

    @property
    def reason_text(self) -> str:
        return text_of(self.reason_params)
