"""Named environments: what trainings that choose one require, and the instance groups whose default it is."""

from django.db import models
from django.db.models import Q

from jobs.models.jobs import InstanceGroup

__all__ = ["DefaultEnvironment", "NamedEnvironment"]


class NamedEnvironment(models.Model):
    """Requirements under a name, written by an administrator. Jobs keep a copy of the lines that they began with."""

    class Kind(models.TextChoices):
        TEXT = "text", "Requirements"
        LOCK = "lock", "Locked project"

    name = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=16, choices=Kind)
    #: Requirements in pip's format; the text of `pyproject.toml` where the project is locked.
    source = models.TextField()
    #: Text of `uv.lock`; "": the project is not locked.
    lock = models.TextField(blank=True, default="")
    #: Requirements as hosts get them, one per line.
    lines = models.TextField()
    #: Instance groups whose trainings may use the environment. Empty: every group.
    groups = models.ManyToManyField(InstanceGroup, blank=True, related_name="environments")
    notes = models.CharField(max_length=1000, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(condition=~Q(name="") & ~Q(lines=""), name="named_environment_says_something"),
            models.CheckConstraint(
                condition=(Q(kind="lock") & ~Q(lock="")) | (Q(kind="text") & Q(lock="")), name="named_environment_kind"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class DefaultEnvironment(models.Model):
    """Environment of an instance group's trainings that choose none and require nothing."""

    group = models.OneToOneField(
        InstanceGroup, on_delete=models.CASCADE, primary_key=True, related_name="default_environment"
    )
    environment = models.ForeignKey(NamedEnvironment, on_delete=models.CASCADE, related_name="default_of")

    def __str__(self) -> str:
        return f"default environment of {self.group_id}"
