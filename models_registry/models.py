"""Templates (code that can train) and registered models (code with its settings)."""

from pathlib import Path

from django.conf import settings
from django.db import models

from core.models import NamedRow
from core.visibility import Readers
from models_registry.script_declarations import Declared

__all__ = ["ModelTemplate", "RegisteredModel", "RegisteredModelVersion"]


class ReadRow(NamedRow):
    """A row with code and its readers."""

    readers = models.CharField(max_length=16, choices=Readers, default=Readers.EVERYBODY)

    class Meta(NamedRow.Meta):
        abstract = True


class KeptCode(models.Model):
    """One state of a model's files, and the facts that are read from them."""

    class Framework(models.TextChoices):
        PYTORCH = "PyTorch"

    framework = models.CharField(max_length=32, choices=Framework, default=Framework.PYTORCH)
    #: Absolute path of the folder, below an allowed model root, from which the files were copied.
    path = models.CharField(max_length=4096)
    #: Path of the immutable copy of the files; several rows may share it. Empty: `path` itself.
    copy = models.CharField(max_length=4096, blank=True, default="")
    #: Path of the script, relative to the folder.
    entry_point = models.CharField(max_length=255)
    #: sha256 over the sorted names, sizes and contents.
    digest = models.CharField(max_length=64)
    #: Compatibility modules on a rank's path, such as ["wmla"].
    compat = models.JSONField(default=list)
    #: WMLA's arguments for folders that the script declares: `train_dir`, `weights`.
    folder_arguments = models.JSONField(default=list)
    #: Declarations of the entry point (`models_registry.script_declarations.Declared`); {}: not read.
    script = models.JSONField(default=dict)

    class Meta:
        abstract = True

    @property
    def folder(self) -> Path:
        """Return the folder from which the files are read."""
        return Path(self.copy or self.path)

    @property
    def declared(self) -> Declared:
        return Declared.from_json(self.script)


class ModelTemplate(ReadRow, KeptCode):
    """Code from which models are made."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="model_templates")
    #: Time of the last copy of the files.
    taken_at = models.DateTimeField()


class RegisteredModel(ReadRow):
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="registered_models")


class RegisteredModelVersion(KeptCode):
    """One state of a model. A job copies the code at submission, and refers to the version for good."""

    class Engine(models.TextChoices):
        ELASTIC = "elastic", "Elastic distributed training"  # resized live
        SINGLE = "single", "Single node"  # one process
        FIXED = "fixed", "Distributed, fixed size"  # needs all its GPUs from start to end

    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    #: Template that it was made from; None: it was registered with its own files.
    template = models.ForeignKey(
        ModelTemplate, null=True, blank=True, on_delete=models.PROTECT, related_name="model_versions"
    )
    engine = models.CharField(max_length=16, choices=Engine, default=Engine.ELASTIC)
    #: Chosen settings by their names in `models_registry.model_settings`: optimizer, learning rate and so on.
    settings = models.JSONField(default=dict)
    #: Parameters that reach the script as `--name value`: given ones, and settings that the script declares.
    parameters = models.JSONField(default=dict)
    #: Name of the dataset that is suggested for trainings.
    default_dataset = models.CharField(max_length=255, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["model", "-number"]
        constraints = [models.UniqueConstraint(fields=["model", "number"], name="model_version_once")]

    def __str__(self) -> str:
        return f"{self.model.name} v{self.number}"
