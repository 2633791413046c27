"""API tokens and one-time links."""

from django.conf import settings
from django.db import models

__all__ = ["ApiToken", "OneTimeLink"]


class ApiToken(models.Model):
    """A bearer token. Only its hash is stored: it is shown once, when it is made."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=64)
    #: sha256 of the token, which is random enough to need no slow hash.
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    #: None: it ends when it is withdrawn.
    expires_at = models.DateTimeField(null=True, blank=True)
    #: Of a log-on by WMLA's clients: the user's session hash then, so that it ends with the password. "": it does not.
    session_hash = models.CharField(max_length=128, blank=True, default="")
    #: To the minute.
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="one_api_token_of_a_name")]


class OneTimeLink(models.Model):
    """By it a user sets a password without knowing an old one: after an invitation, or a reset. Used once."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="one_time_link")
    #: sha256 of the secret in its address, which is shown once.
    digest = models.CharField(max_length=64)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
