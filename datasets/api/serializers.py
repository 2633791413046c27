"""Shapes of datasets in the API."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from core.sources import Source, Upload
from datasets.actions import DatasetRegistration
from datasets.models import Dataset, DatasetVersion

__all__ = ["DatasetInput", "DatasetOutput", "DatasetVersionDetail", "DatasetVersionOutput"]

_BELOW = "Below an allowed data root; instead of `path`, `upload` and `file`."


class DatasetInput(serializers.Serializer[DatasetRegistration]):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    kind = serializers.ChoiceField(Dataset.Kind.choices, default=Dataset.Kind.ANY)
    description = serializers.CharField(max_length=10_000, default="", allow_blank=True)
    path = serializers.CharField(
        max_length=4096, default="", allow_blank=True, help_text="Below an allowed data root; instead of `file`."
    )
    training = serializers.CharField(max_length=4096, default="", allow_blank=True, help_text=_BELOW)
    validation = serializers.CharField(max_length=4096, default="", allow_blank=True)
    testing = serializers.CharField(max_length=4096, default="", allow_blank=True)
    upload = serializers.IntegerField(
        default=None, allow_null=True, min_value=1, help_text="Id of a finished upload; instead of `path`."
    )
    file = serializers.FileField(default=None, allow_null=True, help_text=".tar, .tar.gz, .zip or one data file.")

    def registration(self) -> DatasetRegistration:
        values: dict[str, Any] = dict(self.validated_data)
        file = values.pop("file")
        source = Source(values.pop("path"), Upload(file.name, file.file) if file else None)
        return DatasetRegistration(source=source, **values)


class DatasetVersionOutput(serializers.ModelSerializer[DatasetVersion]):
    class Meta:
        model = DatasetVersion
        fields = [
            "number",
            "path",
            "training",
            "validation",
            "testing",
            "state",
            "progress",
            "problem",
            "size_bytes",
            "file_count",
            "digest",
            "created_at",
        ]


class DatasetVersionDetail(DatasetVersionOutput):
    summary = serializers.DictField(help_text="Format, parts with classes and counts, columns, first rows, warnings.")
    sample_labels = serializers.SerializerMethodField(help_text="One for each image at `samples/<number>/`.")

    class Meta(DatasetVersionOutput.Meta):
        fields = [*DatasetVersionOutput.Meta.fields, "summary", "sample_labels"]

    def get_sample_labels(self, version: DatasetVersion) -> list[str]:
        return [sample["label"] for sample in version.samples]


class DatasetOutput(serializers.ModelSerializer[Dataset]):
    owner = serializers.CharField(source="owner.username")
    latest = serializers.SerializerMethodField(help_text="The newest version: jobs submitted now use it.")

    class Meta:
        model = Dataset
        fields = ["id", "name", "kind", "description", "owner", "created_at", "latest"]

    @extend_schema_field(DatasetVersionOutput)
    def get_latest(self, dataset: Any) -> Any:
        return DatasetVersionOutput(dataset.latest[0]).data
