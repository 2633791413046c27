"""Rows below all apps: uploads in progress, the audit log, the sequence numbers of live topics; and a base."""

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models

__all__ = ["AuditEntry", "NamedRow", "Topic", "Upload"]


class AuditEntry(models.Model):
    """A change with its author. Written by `core.audit.entries`; the database refuses to rewrite an entry."""

    at = models.DateTimeField()
    #: Name of the user, or of the part of Tidepool, that made the change. Not a key: entries outlive users.
    actor = models.CharField(max_length=150)
    #: Action in the past tense, such as "drained".
    verb = models.CharField(max_length=64)
    #: Kind of the changed object, such as "host".
    kind = models.CharField(max_length=64)
    #: Id of the object, as text.
    key = models.CharField(max_length=64)
    #: Name of the object at that time.
    name = models.CharField(max_length=255)
    #: Values before and after the change: field -> value, only of fields that differ.
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
    """A live topic with the number of its newest event, which the transaction of the change increments."""

    name = models.CharField(max_length=64, primary_key=True)
    seq = models.PositiveBigIntegerField(default=0)


class Upload(models.Model):
    """A file that is being uploaded in pieces. The size of its file shows the progress (`core.uploads`)."""

    #: Name of its file in the folder of uploads.
    key = models.CharField(max_length=32, unique=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="uploads")
    #: Name of the file on the user's machine.
    name = models.CharField(max_length=255)
    size_bytes = models.BigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        constraints = [models.CheckConstraint(condition=models.Q(size_bytes__gt=0), name="upload_has_bytes")]


class NamedRow(models.Model):
    """Base of rows that people register by name; see `core.registered_rows`. Each row has an `owner`, too."""

    name = models.CharField(max_length=255, unique=True)
    description = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
