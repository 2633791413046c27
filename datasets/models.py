"""Registered datasets and their versions."""

from pathlib import Path

from django.conf import settings
from django.db import models
from django.db.models import Q

from core.claims import Claimable
from core.models import NamedRow
from datasets.inspection.findings import Part, parts_of

__all__ = ["LINKS", "Dataset", "DatasetVersion"]

#: Folders that were picked one by one lie in the version's own folder under IBM's names, as links.
LINKS = {"training": "train_db", "validation": "val_db", "testing": "test_db"}


class Dataset(NamedRow):
    class Kind(models.TextChoices):
        """Kinds in IBM's order and words."""

        IMAGES = "images", "Images for Object Classification"
        CSV = "csv", "CSV Files"
        ANY = "any", "Any"

    kind = models.CharField(max_length=16, choices=Kind, default=Kind.ANY)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="datasets")


class DatasetVersion(Claimable):
    """One state of a dataset's files. Jobs name a version, so that a later one changes no running job."""

    class State(models.TextChoices):
        #: Registered; nobody has looked at its files yet.
        WAITING = "WAITING"
        CHECKING = "CHECKING"
        READY = "READY"
        #: `problem` says what is wrong with its files.
        INVALID = "INVALID"

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    #: Absolute folder (or file) under one of the allowed data roots: DATA_DIR of a job.
    path = models.CharField(max_length=4096)
    #: Absolute folders, where they were picked one by one; `path` then holds links to them.
    training = models.CharField(max_length=4096, blank=True, default="")
    validation = models.CharField(max_length=4096, blank=True, default="")
    testing = models.CharField(max_length=4096, blank=True, default="")
    #: Its files came by upload: they are removed together with the version.
    is_uploaded = models.BooleanField(default=False)
    #: An uploaded archive that still has to be unpacked to `path`, and the name that its owner gave it.
    archive = models.CharField(max_length=4096, blank=True, default="")
    archive_name = models.CharField(max_length=255, blank=True, default="")

    state = models.CharField(max_length=16, choices=State, default=State.WAITING)
    #: 0..1, of the check that goes on.
    progress = models.FloatField(default=0)
    #: Sentences, one per line.
    problem = models.TextField(blank=True, default="")

    size_bytes = models.BigIntegerField(null=True)
    file_count = models.PositiveIntegerField(null=True)
    #: sha256 over the sorted names, sizes and contents.
    digest = models.CharField(max_length=64, blank=True, default="")
    #: `Findings.summary()` of the check.
    summary = models.JSONField(default=dict)
    #: Of each: label, role, and `file` (relative to `path`) or `png` (base64).
    samples = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["dataset", "-number"]
        indexes = [
            # Versions that wait for a check are few among many that are checked.
            models.Index(
                fields=["id"], condition=Q(state__in=("WAITING", "CHECKING")), name="dataset_version_unchecked"
            )
        ]
        constraints = [
            models.UniqueConstraint(fields=["dataset", "number"], name="dataset_version_once"),
            models.CheckConstraint(
                condition=Q(state__in=("WAITING", "CHECKING", "READY", "INVALID")), name="dataset_version_state"
            ),
            models.CheckConstraint(
                condition=~Q(state="READY") | Q(size_bytes__isnull=False, file_count__isnull=False, problem=""),
                name="dataset_version_ready_is_checked",
            ),
            models.CheckConstraint(
                condition=~Q(state="INVALID") | ~Q(problem=""), name="dataset_version_invalid_says_why"
            ),
            models.CheckConstraint(
                condition=(Q(state="CHECKING") & ~Q(claim="")) | (~Q(state="CHECKING") & Q(claim="")),
                name="dataset_version_claimed_while_checked",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.dataset.name} v{self.number}"

    @property
    def parts(self) -> list[Part]:
        """The folders that it consists of. Reads the file system where they were not picked one by one."""
        if not self.training:
            return parts_of(Path(self.path))
        picked = {"training": self.training, "validation": self.validation, "testing": self.testing}
        return [Part(role, Path(folder), LINKS[role]) for role, folder in picked.items() if folder]
