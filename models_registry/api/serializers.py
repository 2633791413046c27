"""Shapes of templates and models in the API."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from core.errors import field_error
from core.rest import ObjectField, ReferenceField
from core.sources import Source, Upload
from models_registry.actions import ModelRegistration, TemplateAddition
from models_registry.code import inspect_code
from models_registry.models import ModelTemplate, RegisteredModel, RegisteredModelVersion
from models_registry.queries import find_template

__all__ = [
    "ChangesOutput",
    "ChangesQuery",
    "CloneInput",
    "FileQuery",
    "FilesOutput",
    "ModelInput",
    "ModelOutput",
    "ModelVersionOutput",
    "RegisteredOutput",
    "TemplateInput",
    "TemplateOutput",
]


class _FilesInput(serializers.Serializer[Any]):
    path = serializers.CharField(
        max_length=4096, default="", allow_blank=True, help_text="Below an allowed model root; instead of `file`."
    )
    file = serializers.FileField(default=None, allow_null=True, help_text=".tar, .tar.gz, .zip or one .py file.")

    def given_source(self) -> Source:
        path, file = self.validated_data["path"], self.validated_data["file"]
        return Source(path, Upload(file.name, file.file) if file else None)


class TemplateInput(_FilesInput):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    framework = serializers.CharField(max_length=64, default=ModelTemplate.Framework.PYTORCH)
    entry_point = serializers.CharField(max_length=4096, default="main.py", help_text="The files must contain it.")
    description = serializers.CharField(max_length=10_000, default="", allow_blank=True)

    def addition(self) -> TemplateAddition:
        values = {name: value for name, value in self.validated_data.items() if name not in ("path", "file")}
        return TemplateAddition(source=self.given_source(), **values)


class TemplateOutput(serializers.ModelSerializer[ModelTemplate]):
    owner = serializers.CharField(source="owner.username")
    compat = serializers.ListField(child=serializers.CharField())
    used = serializers.IntegerField(help_text="Models that were made of it.")

    class Meta:
        model = ModelTemplate
        fields = [
            "id",
            "name",
            "description",
            "framework",
            "owner",
            "path",
            "entry_point",
            "digest",
            "compat",
            "used",
            "created_at",
            "taken_at",
        ]


class ModelInput(_FilesInput):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    template = ReferenceField(default=None, allow_null=True, help_text="Whose code it takes; instead of path or file.")
    framework = serializers.CharField(max_length=64, default=RegisteredModelVersion.Framework.PYTORCH)
    engine = serializers.ChoiceField(
        RegisteredModelVersion.Engine.choices, default=RegisteredModelVersion.Engine.ELASTIC
    )
    entry_point = serializers.CharField(
        max_length=4096, default="", allow_blank=True, help_text="Of path or file; a template has its own."
    )
    dataset = serializers.CharField(
        max_length=255, default="", allow_blank=True, help_text="Name of the dataset proposed when training."
    )
    settings = ObjectField(
        default=dict,
        help_text="lr_policy, learning_rate, gamma, step_size, step_values, t_max, optimizer, momentum, weight_decay, "
        "hidden_size, epochs, batch_size: each is given to the script if it asks for it.",
    )
    parameters = ObjectField(default=dict, help_text="Each reaches the script as `--name value`, over the settings.")
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
        dataset = values.pop("dataset")
        for name in ("template", "path", "file"):
            del values[name]
        return ModelRegistration(source=self._source(), default_dataset=dataset, **values)

    def _source(self) -> Source | ModelTemplate:
        given = self.validated_data
        if given["template"] is None:
            return self.given_source()
        if given["path"] or given["file"] or given["entry_point"]:
            raise field_error(
                "template", "A template has its own files and entry point: leave path, file and both out."
            )
        template = find_template(given["template"])
        if template is None:
            raise field_error(
                "template", f"There is no template {str(given['template'])[:100]!a}: look it up in the list."
            )
        return template


class CloneInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)


class ModelVersionOutput(serializers.ModelSerializer[RegisteredModelVersion]):
    parameters = ObjectField(help_text="Given ones, and the settings that the script asks for.")
    settings = ObjectField()
    compat = serializers.ListField(child=serializers.CharField())
    dataset = serializers.CharField(source="default_dataset")
    template = serializers.CharField(source="template.name", default=None, allow_null=True)

    class Meta:
        model = RegisteredModelVersion
        fields = [
            "number",
            "template",
            "framework",
            "engine",
            "path",
            "entry_point",
            "dataset",
            "settings",
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
        return inspect_code(version.folder, version.entry_point).warning


class FileQuery(serializers.Serializer[Any]):
    file = serializers.CharField(default="", max_length=4096, help_text="Whose text is wanted; absent: none.")
    version = serializers.IntegerField(default=None, min_value=1, max_value=2**31 - 1, help_text="Absent: the newest.")


class _FileOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    size_bytes = serializers.IntegerField()


class FilesOutput(serializers.Serializer[Any]):
    files = _FileOutput(many=True)
    #: Of the file that was asked for; null: none was, or it is no text.
    text = serializers.CharField(allow_null=True)


class ChangesQuery(serializers.Serializer[Any]):
    old = serializers.IntegerField(default=None, min_value=1, max_value=2**31 - 1, help_text="Absent: the one before.")
    new = serializers.IntegerField(default=None, min_value=1, max_value=2**31 - 1, help_text="Absent: the newest.")


class _ValueChangeOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    old = serializers.JSONField(allow_null=True)
    new = serializers.JSONField(allow_null=True)


class _LineOutput(serializers.Serializer[Any]):
    kind = serializers.CharField(help_text="added, removed, same, or place: where the next ones stand.")
    text = serializers.CharField()


class _FileChangeOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    kind = serializers.CharField(help_text="added, removed or changed.")
    lines = _LineOutput(many=True)


class ChangesOutput(serializers.Serializer[Any]):
    old = serializers.IntegerField()
    new = serializers.IntegerField()
    values = _ValueChangeOutput(many=True)
    files = _FileChangeOutput(many=True)
