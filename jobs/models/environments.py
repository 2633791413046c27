"""Named environments: what trainings that choose one require, and the instance groups whose default it is."""

from typing import Final

from django.db import models
from django.db.models import Q

from jobs.models.jobs import InstanceGroup

__all__ = ["MOST_PATH", "DefaultEnvironment", "NamedEnvironment"]


#: Most characters of a folder's path.
MOST_PATH: Final = 1000


class NamedEnvironment(models.Model):
    """Requirements under a name, written by an administrator. Jobs keep a copy of the lines that they began with."""

    class Kind(models.TextChoices):
        TEXT = "text", "Requirements"
        LOCK = "lock", "Locked project"
        FOLDER = "folder", "Folder"

    name = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=16, choices=Kind)
    #: Requirements in pip's format; the text of `pyproject.toml` where the project is locked; "": it is a folder.
    source = models.TextField(blank=True, default="")
    #: Text of `uv.lock`; "": the project is not locked.
    lock = models.TextField(blank=True, default="")
    #: Path of a virtual or conda environment on the hosts; "": it is none.
    folder = models.CharField(max_length=MOST_PATH, blank=True, default="")
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
                condition=(Q(kind="lock", folder="") & ~Q(lock=""))
                | Q(kind="text", lock="", folder="")
                | (Q(kind="folder", lock="", source="") & ~Q(folder="")),
                name="named_environment_kind",
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
