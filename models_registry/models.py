"""Templates (code that can train) and registered models (a template's code with what it is trained by)."""

from pathlib import Path

from django.conf import settings
from django.db import models

from core.models import NamedRow
from core.readers import Readers
from models_registry.declared import Declared

__all__ = ["ModelTemplate", "RegisteredModel", "RegisteredModelVersion"]


class ReadRow(NamedRow):
    """A row with code and its readers."""

    readers = models.CharField(max_length=16, choices=Readers, default=Readers.EVERYBODY)

    class Meta(NamedRow.Meta):
        abstract = True


class KeptCode(models.Model):
    """One state of a model's files, and what identifies it."""

    class Framework(models.TextChoices):
        PYTORCH = "PyTorch"

    framework = models.CharField(max_length=32, choices=Framework, default=Framework.PYTORCH)
    #: Absolute folder under one of the allowed model roots that the files were taken from.
    path = models.CharField(max_length=4096)
    #: Our own copy of them, which nobody edits; several rows may share it. Empty: `path` itself.
    copy = models.CharField(max_length=4096, blank=True, default="")
    #: The script, relative to the folder.
    entry_point = models.CharField(max_length=255)
    #: sha256 over the sorted names, sizes and contents.
    digest = models.CharField(max_length=64)
    #: Compatibility modules on a rank's path, such as ["wmla"].
    compat = models.JSONField(default=list)
    #: Those of WMLA's arguments for folders that the script declares: `train_dir`, `weights`.
    folder_arguments = models.JSONField(default=list)
    #: `models_registry.declared.Declared` of the entry point; {}: nobody has looked.
    script = models.JSONField(default=dict)

    class Meta:
        abstract = True

    @property
    def folder(self) -> Path:
        """The folder that the files are read from."""
        return Path(self.copy or self.path)

    @property
    def declared(self) -> Declared:
        return Declared.from_json(self.script)


class ModelTemplate(ReadRow, KeptCode):
    """Code by itself: models are made from it."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="model_templates")
    #: When the files were taken over the last time.
    taken_at = models.DateTimeField()


class RegisteredModel(ReadRow):
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="registered_models")


class RegisteredModelVersion(KeptCode):
    """One state of a model. A job copies its code when it is submitted, and names the version for good."""

    class Engine(models.TextChoices):
        ELASTIC = "elastic", "Elastic distributed training"  # resized live
        SINGLE = "single", "Single node"  # one process
        FIXED = "fixed", "Distributed, fixed size"  # needs all its GPUs from start to end

    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    #: None: it was registered with files of its own.
    template = models.ForeignKey(
        ModelTemplate, null=True, blank=True, on_delete=models.PROTECT, related_name="model_versions"
    )
    engine = models.CharField(max_length=16, choices=Engine, default=Engine.ELASTIC)
    #: What was chosen of `models_registry.settings`, by name: optimizer, learning rate and so on.
    settings = models.JSONField(default=dict)
    #: Each reaches the script as `--name value`: those given, and the settings that the script asks for.
    parameters = models.JSONField(default=dict)
    #: Name of the dataset proposed when training.
    default_dataset = models.CharField(max_length=255, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["model", "-number"]
        constraints = [models.UniqueConstraint(fields=["model", "number"], name="model_version_once")]

    def __str__(self) -> str:
        return f"{self.model.name} v{self.number}"
