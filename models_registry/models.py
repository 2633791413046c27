"""Registered models: the code that trains, and the parameters that it takes."""

from __future__ import annotations

from django.conf import settings
from django.db import models

__all__ = ["RegisteredModel", "RegisteredModelVersion"]


class RegisteredModel(models.Model):
    name = models.CharField(max_length=255, unique=True)
    description = models.TextField(blank=True, default="")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="registered_models")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class RegisteredModelVersion(models.Model):
    """One state of a model's code. Submitting a job copies `path`, so that later edits change no running job."""

    class Framework(models.TextChoices):
        PYTORCH = "PyTorch"

    class Engine(models.TextChoices):
        ELASTIC = "elastic"  # resized live
        FIXED = "fixed"  # needs all its GPUs from start to end
        SINGLE = "single"  # one process

    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    framework = models.CharField(max_length=32, choices=Framework, default=Framework.PYTORCH)
    engine = models.CharField(max_length=16, choices=Engine, default=Engine.ELASTIC)
    #: Absolute folder under one of the allowed model roots.
    path = models.CharField(max_length=4096)
    #: The script, relative to `path`.
    entry_point = models.CharField(max_length=255)
    #: sha256 over the sorted names and contents of the folder.
    digest = models.CharField(max_length=64)
    #: Default parameters: each reaches the script as `--name value`.
    parameters = models.JSONField(default=dict)
    #: Compatibility modules on a rank's path, such as ["wmla"].
    compat = models.JSONField(default=list)
    #: Name of the dataset proposed when training.
    default_dataset = models.CharField(max_length=255, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["model", "-number"]
        constraints = [models.UniqueConstraint(fields=["model", "number"], name="model_version_once")]

    def __str__(self) -> str:
        return f"{self.model.name} v{self.number}"
