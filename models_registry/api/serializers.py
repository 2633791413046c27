"""Shapes of models in the API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from models_registry.actions import ModelRegistration
from models_registry.code import inspect_code
from models_registry.models import RegisteredModel, RegisteredModelVersion
from webapp.lib.rest import ObjectField
from webapp.lib.sources import Source, Upload

__all__ = ["ModelInput", "ModelOutput", "ModelVersionOutput", "RegisteredOutput"]


class ModelInput(serializers.Serializer[ModelRegistration]):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    framework = serializers.CharField(max_length=64, default=RegisteredModelVersion.Framework.PYTORCH)
    engine = serializers.ChoiceField(
        RegisteredModelVersion.Engine.choices, default=RegisteredModelVersion.Engine.ELASTIC
    )
    entry_point = serializers.CharField(max_length=4096)
    path = serializers.CharField(
        max_length=4096, default="", allow_blank=True, help_text="Below an allowed model root; instead of `file`."
    )
    file = serializers.FileField(default=None, allow_null=True, help_text=".tar, .tar.gz, .zip or one .py file.")
    dataset = serializers.CharField(
        max_length=255, default="", allow_blank=True, help_text="Name of the dataset proposed when training."
    )
    parameters = ObjectField(default=dict, help_text="Defaults; each reaches the script as `--name value`.")
    compat = serializers.ListField(
        child=serializers.CharField(max_length=64),
        default=None,
        allow_null=True,
        max_length=20,
        help_text="Compatibility modules; absent: told from what the code imports.",
    )
    description = serializers.CharField(max_length=10_000, default="", allow_blank=True)

    def registration(self) -> ModelRegistration:
        values: dict[str, Any] = dict(self.validated_data)
        path, file, dataset = values.pop("path"), values.pop("file"), values.pop("dataset")
        upload = Upload(file.name, file.file) if file else None
        return ModelRegistration(source=Source(path, upload), default_dataset=dataset, **values)


class ModelVersionOutput(serializers.ModelSerializer[RegisteredModelVersion]):
    parameters = ObjectField()
    compat = serializers.ListField(child=serializers.CharField())
    dataset = serializers.CharField(source="default_dataset")

    class Meta:
        model = RegisteredModelVersion
        fields = [
            "number",
            "framework",
            "engine",
            "path",
            "entry_point",
            "dataset",
            "parameters",
            "compat",
            "digest",
            "created_at",
        ]


class ModelOutput(serializers.ModelSerializer[RegisteredModel]):
    owner = serializers.CharField(source="owner.username")
    latest = serializers.SerializerMethodField(help_text="The newest version: jobs submitted now use it.")

    class Meta:
        model = RegisteredModel
        fields = ["id", "name", "description", "owner", "created_at", "latest"]

    @extend_schema_field(ModelVersionOutput)
    def get_latest(self, model: Any) -> Any:
        return ModelVersionOutput(model.latest[0]).data


class RegisteredOutput(ModelOutput):
    """What registering answers: the model, and what is wrong with its script as far as reading it tells."""

    warning = serializers.SerializerMethodField()

    class Meta(ModelOutput.Meta):
        fields = [*ModelOutput.Meta.fields, "warning"]

    @extend_schema_field({"type": "string", "nullable": True})
    def get_warning(self, model: Any) -> str | None:
        version = model.latest[0]
        return inspect_code(Path(version.path), version.entry_point).warning
