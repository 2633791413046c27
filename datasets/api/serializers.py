"""Shapes of datasets in the API."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from datasets.actions import DatasetRegistration
from datasets.models import Dataset, DatasetVersion
from webapp.lib.sources import Source, Upload

__all__ = ["DatasetInput", "DatasetOutput", "DatasetVersionOutput"]


class DatasetInput(serializers.Serializer[DatasetRegistration]):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    kind = serializers.ChoiceField(Dataset.Kind.choices, default=Dataset.Kind.ANY)
    description = serializers.CharField(max_length=10_000, default="", allow_blank=True)
    path = serializers.CharField(
        max_length=4096, default="", allow_blank=True, help_text="Below an allowed data root; instead of `file`."
    )
    file = serializers.FileField(default=None, allow_null=True, help_text=".tar, .tar.gz, .zip or one data file.")

    def registration(self) -> DatasetRegistration:
        values: dict[str, Any] = self.validated_data
        file = values["file"]
        return DatasetRegistration(
            name=values["name"],
            kind=values["kind"],
            description=values["description"],
            source=Source(values["path"], Upload(file.name, file.file) if file else None),
        )


class DatasetVersionOutput(serializers.ModelSerializer[DatasetVersion]):
    class Meta:
        model = DatasetVersion
        fields = ["number", "path", "size_bytes", "file_count", "digest", "created_at"]


class DatasetOutput(serializers.ModelSerializer[Dataset]):
    owner = serializers.CharField(source="owner.username")
    latest = serializers.SerializerMethodField(help_text="The newest version: jobs submitted now use it.")

    class Meta:
        model = Dataset
        fields = ["id", "name", "kind", "description", "owner", "created_at", "latest"]

    @extend_schema_field(DatasetVersionOutput)
    def get_latest(self, dataset: Any) -> Any:
        return DatasetVersionOutput(dataset.latest[0]).data
