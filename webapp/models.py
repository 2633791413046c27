"""What belongs to no app: the tokens that people's scripts log in with."""

from __future__ import annotations

from django.conf import settings
from django.db import models

__all__ = ["ApiToken"]


class ApiToken(models.Model):
    """A bearer token. Only its hash is stored: it is shown once, when it is made."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_token")
    #: sha256 of the token, which is random enough to need no slow hash.
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
