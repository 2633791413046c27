"""Saved filters of the list of jobs."""

from __future__ import annotations

from django.conf import settings
from django.db import models

__all__ = ["SavedFilter"]


class SavedFilter(models.Model):
    """A filter of the list of jobs that somebody gave a name."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="job_filters")
    name = models.CharField(max_length=64)
    #: Its parameters, as an address has them: `state=FAILED&within=7d`.
    parameters = models.CharField(max_length=2000)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["owner", "name"]
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="saved_filter_named_once")]
