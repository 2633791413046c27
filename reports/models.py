"""Reports, their blocks, and public links."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from core.visibility import Readers

__all__ = ["MAX_BLOCKS", "MAX_BLOCK_BYTES", "MAX_REPORT_TEXT", "Report", "ReportBlock", "ShareLink"]

#: Maximum number of blocks of a report.
MAX_BLOCKS = 60
#: Maximum length of a block's text in characters.
MAX_REPORT_TEXT = 20_000
#: Maximum size of a block's data as JSON.
MAX_BLOCK_BYTES = 512 * 1024


class Report(models.Model):
    """A titled list of blocks."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="reports")
    title = models.CharField(max_length=200)
    #: Readers of the report by its address; see `core.visibility`.
    readers = models.CharField(max_length=16, choices=Readers, default=Readers.OWNER)
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=~Q(title=""), name="report_has_a_title"),
            models.CheckConstraint(condition=Q(readers__in=Readers.values), name="report_readers"),
        ]

    def __str__(self) -> str:
        return self.title


class ReportBlock(models.Model):
    """A text, or a frozen chart, table or note of trainings.

    No foreign key leads to the trainings: the block does not change when they do.
    """

    class Kind(models.TextChoices):
        TEXT = "text", "Text"
        CHART = "chart", "Chart"
        TABLE = "table", "Table"
        NOTE = "note", "Note"

    report = models.ForeignKey(Report, on_delete=models.CASCADE, related_name="blocks")
    #: Position from the top, from 0.
    place = models.PositiveIntegerField()
    kind = models.CharField(max_length=8, choices=Kind)
    #: Heading of the block; "" for texts.
    title = models.CharField(max_length=255, blank=True, default="")
    #: Markdown of texts and notes.
    text = models.TextField(blank=True, default="")
    #: Number of changes of the text, to detect concurrent ones.
    edits = models.PositiveIntegerField(default=0)
    #: Frozen data, as `reports.frozen` writes it; {} for texts and notes.
    data = models.JSONField(default=dict)
    #: Size of `data` as JSON.
    size_bytes = models.PositiveIntegerField(default=0)
    #: [id, name] of each training of the block; [] for texts.
    sources = models.JSONField(default=list)
    added_at = models.DateTimeField()

    class Meta:
        ordering = ["report", "place"]
        constraints = [
            models.UniqueConstraint(fields=["report", "place"], name="report_block_place"),
            models.CheckConstraint(condition=Q(kind__in=("text", "chart", "table", "note")), name="report_block_kind"),
            models.CheckConstraint(condition=Q(size_bytes__lte=MAX_BLOCK_BYTES), name="report_block_size"),
            models.CheckConstraint(
                condition=(Q(kind__in=("text", "note")) & Q(size_bytes=0))
                | (Q(kind__in=("chart", "table")) & Q(text="", edits=0, size_bytes__gt=0)),
                name="report_block_has_text_or_data",
            ),
        ]


class ShareLink(models.Model):
    """A public link to a report. Its secret is shown once, and not stored."""

    report = models.ForeignKey(Report, on_delete=models.CASCADE, related_name="links")
    #: SHA-256 of the secret in its address.
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    #: Number of visits by the link.
    uses = models.PositiveIntegerField(default=0)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(expires_at__gt=F("created_at")), name="share_link_ends_later"),
            models.CheckConstraint(
                condition=Q(uses=0, last_used_at=None) | Q(uses__gt=0, last_used_at__isnull=False),
                name="share_link_used_iff_counted",
            ),
        ]
