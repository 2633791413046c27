"""Named environments, the environments that trainings require by name or not, and those that hosts have."""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from django.db import models
from django.db.models import Q

from jobs.models.jobs import InstanceGroup
from workers.models import Host

__all__ = ["MOST_PATH", "DefaultEnvironment", "HostEnvironment", "NamedEnvironment", "RequiredEnvironment"]


#: Most characters of a folder's path.
MOST_PATH: Final = 1000


class RequiredEnvironment(models.Model):
    """Requirements that trainings have, whether or not under a name. Trainings with the same share it on each host."""

    #: sha256 of the requirements.
    key = models.CharField(max_length=64, unique=True)
    #: Requirements as hosts get them, one per line.
    lines = models.TextField()
    #: Whether hosts keep it although no training uses it.
    is_pinned = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(key="") & ~Q(lines=""), name="required_environment_says_what")
        ]

    def __str__(self) -> str:
        return self.key[:12]

    @classmethod
    def of(cls, lines: str) -> "RequiredEnvironment":
        """Return the row of these requirements, one per line."""
        key = hashlib.sha256(lines.encode()).hexdigest()
        return cls.objects.get_or_create(key=key, defaults={"lines": lines})[0]


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
    #: The same lines as trainings require them, with the hosts that have them. Set when the row is saved.
    required = models.ForeignKey(RequiredEnvironment, on_delete=models.PROTECT, editable=False, related_name="names")
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

    def save(self, *, update_fields: Iterable[str] | None = None, **options: Any) -> None:
        self.required = RequiredEnvironment.of(self.lines)
        changed = None if update_fields is None else {*update_fields, "required"}
        super().save(update_fields=changed, **options)


class DefaultEnvironment(models.Model):
    """Environment of an instance group's trainings that choose none and require nothing."""

    group = models.OneToOneField(
        InstanceGroup, on_delete=models.CASCADE, primary_key=True, related_name="default_environment"
    )
    environment = models.ForeignKey(NamedEnvironment, on_delete=models.CASCADE, related_name="default_of")

    def __str__(self) -> str:
        return f"default environment of {self.group_id}"


class HostEnvironment(models.Model):
    """A `RequiredEnvironment` that a host has, or was asked to have, and what the host says of it."""

    class State(models.TextChoices):
        ASKED = "asked", "asked for"
        BUILDING = "building", "being prepared"
        READY = "ready", "ready"
        FAILED = "failed", "failed"

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="environments")
    environment = models.ForeignKey(RequiredEnvironment, on_delete=models.CASCADE, related_name="hosts")
    #: Number of the newest request to the host, and whether it asks for a new build of what is there.
    number = models.PositiveIntegerField(default=1)
    is_fresh = models.BooleanField(default=False)
    state = models.CharField(max_length=16, choices=State, default=State.ASKED)
    #: Time since which it is in the state; of one that was asked for, the time of the request.
    since = models.DateTimeField()
    #: File with the output of its build.
    log = models.CharField(max_length=4096, blank=True, default="")
    #: Name of the environment on the host; "": none, the cluster's packages meet the requirements.
    digest = models.CharField(max_length=128, blank=True, default="")
    #: Last lines of a build that failed.
    why = models.TextField(blank=True, default="")
    size_bytes = models.BigIntegerField(null=True)
    #: Memory of its forkserver; None: none runs.
    memory_bytes = models.BigIntegerField(null=True)

    class Meta:
        ordering = ["environment", "host"]
        constraints = [
            models.UniqueConstraint(fields=["host", "environment"], name="environment_of_host_once"),
            models.CheckConstraint(condition=Q(state="failed") | Q(why=""), name="environment_of_host_why"),
        ]

    def __str__(self) -> str:
        return f"environment {self.environment_id} of host {self.host_id}: {self.state}"
