"""What belongs to no app: how people and their scripts get in, files that are being uploaded, who changed what."""

from __future__ import annotations

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models

__all__ = ["ApiToken", "AuditEntry", "OneTimeLink", "Upload"]


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


class AuditEntry(models.Model):
    """Who changed what. Written by `webapp.lib.audit`; the database refuses to rewrite an entry (migration 0004)."""

    at = models.DateTimeField()
    #: A user's name, or the part of Tidepool that did it. No key: users go, what they did stays.
    actor = models.CharField(max_length=150)
    #: In the past tense, such as "drained".
    verb = models.CharField(max_length=64)
    #: Such as "host".
    kind = models.CharField(max_length=64)
    #: Its id, as text.
    key = models.CharField(max_length=64)
    #: What it was called then.
    name = models.CharField(max_length=255)
    #: Field -> value, of what differs only.
    before = models.JSONField(default=dict, encoder=DjangoJSONEncoder)
    after = models.JSONField(default=dict, encoder=DjangoJSONEncoder)

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [
            models.Index(fields=["at", "id"], name="audit_by_time"),
            models.Index(fields=["kind", "key", "at", "id"], name="audit_by_object"),
            models.Index(fields=["kind", "at", "id"], name="audit_by_kind"),
            models.Index(fields=["actor", "at", "id"], name="audit_by_actor"),
        ]
