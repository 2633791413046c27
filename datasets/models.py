"""Registered datasets and their versions."""

from __future__ import annotations

from django.conf import settings
from django.db import models

__all__ = ["Dataset", "DatasetVersion"]


class Dataset(models.Model):
    class Kind(models.TextChoices):
        ANY = "any"
        IMAGES = "images"
        CSV = "csv"

    name = models.CharField(max_length=255, unique=True)
    kind = models.CharField(max_length=16, choices=Kind, default=Kind.ANY)
    description = models.TextField(blank=True, default="")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="datasets")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class DatasetVersion(models.Model):
    """One state of a dataset's files. Jobs name a version, so that a later one changes no running job."""

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    #: Absolute folder (or file) under one of the allowed data roots.
    path = models.CharField(max_length=4096)
    size_bytes = models.BigIntegerField(null=True)
    file_count = models.PositiveIntegerField(null=True)
    #: sha256 over the sorted names, sizes and contents.
    digest = models.CharField(max_length=64, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["dataset", "-number"]
        constraints = [models.UniqueConstraint(fields=["dataset", "number"], name="dataset_version_once")]

    def __str__(self) -> str:
        return f"{self.dataset.name} v{self.number}"
