"""Registered datasets and their versions."""

from pathlib import Path

from django.conf import settings
from django.db import models
from django.db.models import Q

from core.claims import Claimable
from core.models import NamedRow
from datasets.inspection.findings import Part, parts_of

__all__ = ["LINKS", "Dataset", "DatasetVersion"]

#: Role -> IBM's name of the link to a folder that was picked, inside the version's own folder.
LINKS = {"training": "train_db", "validation": "val_db", "testing": "test_db"}


class Dataset(NamedRow):
    class Kind(models.TextChoices):
        """Formats of datasets, in IBM's order and words."""

        IMAGES = "images", "Images for Object Classification"
        CSV = "csv", "CSV Files"
        ANY = "any", "Any"

    kind = models.CharField(max_length=16, choices=Kind, default=Kind.ANY)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="datasets")


class DatasetVersion(Claimable):
    """One state of a dataset's files. A job refers to a version, so a later one does not change a running job."""

    class State(models.TextChoices):
        #: Registered; its files have not been checked yet.
        WAITING = "WAITING"
        CHECKING = "CHECKING"
        READY = "READY"
        #: `problem` says what is wrong with its files.
        INVALID = "INVALID"

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    #: Absolute path of the folder (or file) below an allowed data root; a job gets it as DATA_DIR.
    path = models.CharField(max_length=4096)
    #: Absolute paths of folders that were picked one by one; `path` then contains links to them.
    training = models.CharField(max_length=4096, blank=True, default="")
    validation = models.CharField(max_length=4096, blank=True, default="")
    testing = models.CharField(max_length=4096, blank=True, default="")
    #: Whether the files were uploaded; they are then deleted with the version.
    is_uploaded = models.BooleanField(default=False)
    #: Path of an uploaded archive that is still to be unpacked to `path`, and its original name.
    archive = models.CharField(max_length=4096, blank=True, default="")
    archive_name = models.CharField(max_length=255, blank=True, default="")

    state = models.CharField(max_length=16, choices=State, default=State.WAITING)
    #: Progress of the current check, 0 to 1.
    progress = models.FloatField(default=0)
    #: Problems as sentences, one per line.
    problem = models.TextField(blank=True, default="")

    size_bytes = models.BigIntegerField(null=True)
    file_count = models.PositiveIntegerField(null=True)
    #: sha256 over the sorted names, sizes and contents.
    digest = models.CharField(max_length=64, blank=True, default="")
    #: Result of the check, from `Findings.summary()`.
    summary = models.JSONField(default=dict)
    #: Sample images: label, role, and `file` (relative to `path`) or `png` (base64).
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
    def picked(self) -> list[str]:
        """Return the folders that were picked one by one, which `path` has links to."""
        return [folder for folder in (self.training, self.validation, self.testing) if folder]

    @property
    def parts(self) -> list[Part]:
        """Return the folders of the version. Reads the file system unless they were picked one by one."""
        if not self.training:
            return parts_of(Path(self.path))
        picked = {"training": self.training, "validation": self.validation, "testing": self.testing}
        return [Part(role, Path(folder), LINKS[role]) for role, folder in picked.items() if folder]
