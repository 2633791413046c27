"""What belongs to no app: tokens that people's scripts log in with, and files that are being uploaded."""

from __future__ import annotations

from django.conf import settings
from django.db import models

__all__ = ["ApiToken", "Upload"]


class ApiToken(models.Model):
    """A bearer token. Only its hash is stored: it is shown once, when it is made."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_token")
    #: sha256 of the token, which is random enough to need no slow hash.
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)


class Upload(models.Model):
    """A file that is being uploaded in pieces. How much of it is here, its file says (`webapp.lib.uploads`)."""

    #: Name of its file in the folder of uploads.
    key = models.CharField(max_length=32, unique=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="uploads")
    #: As on the machine that it comes from.
    name = models.CharField(max_length=255)
    size_bytes = models.BigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        constraints = [models.CheckConstraint(condition=models.Q(size_bytes__gt=0), name="upload_has_bytes")]
