"""Rows below all apps: uploads in progress, the audit log, the sequence numbers of live topics; and a base."""

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models

__all__ = ["AuditEntry", "NamedRow", "Topic", "Upload"]


class AuditEntry(models.Model):
    """A change, and who made it. Written by `core.audit.entries`; the database refuses to rewrite an entry."""

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


class Topic(models.Model):
    """`seq` of a live topic, raised in the transaction whose change it announces."""

    name = models.CharField(max_length=64, primary_key=True)
    seq = models.PositiveBigIntegerField(default=0)


class Upload(models.Model):
    """A file that is being uploaded in pieces. How much of it is here, its file says (`core.uploads`)."""

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


class NamedRow(models.Model):
    """Base of what people register by name; see `core.registered_rows`. Each has an `owner`, too."""

    name = models.CharField(max_length=255, unique=True)
    description = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
