"""REST addresses below `/api/v1/datasets/`."""

import base64
import os
import stat
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import NotFound, UserError, existing
from core.files_api import SourceInput
from core.folders import resolve_under
from core.rest import PARSERS_WITH_FILES, ByReference, NamedPages, NumberedPages, signed_in, validated
from datasets import actions, queries
from datasets.inspection.pictures import CONTENT_TYPES, image_type
from datasets.models import Dataset, DatasetVersion

__all__ = ["urlpatterns"]

_BELOW = "Path below a permitted data root; instead of `path`, `upload` and `file`."
#: Largest sample image in bytes.
_MAX_BYTES = 16 * 1024**2
_GONE = {204: OpenApiResponse(description="Deleted.")}


class DatasetInput(SourceInput):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    kind = serializers.ChoiceField(Dataset.Kind.choices, default=Dataset.Kind.ANY)
    description = serializers.CharField(max_length=10_000, default="", allow_blank=True)
    path = serializers.CharField(
        max_length=4096, default="", allow_blank=True, help_text="Path below a permitted data root; instead of `file`."
    )
    training = serializers.CharField(max_length=4096, default="", allow_blank=True, help_text=_BELOW)
    validation = serializers.CharField(max_length=4096, default="", allow_blank=True)
    testing = serializers.CharField(max_length=4096, default="", allow_blank=True)
    upload = serializers.IntegerField(
        default=None, allow_null=True, min_value=1, help_text="Id of a finished upload; instead of `path`."
    )
    file = serializers.FileField(default=None, allow_null=True, help_text=".tar, .tar.gz, .zip or one data file.")


class DatasetVersionOutput(serializers.ModelSerializer[DatasetVersion]):
    class Meta:
        model = DatasetVersion
        fields = [
            "number", "path", "training", "validation", "testing", "state", "progress", "problem", "size_bytes",
            "file_count", "digest", "created_at",
        ]  # fmt: skip


class DatasetVersionDetail(DatasetVersionOutput):
    summary = serializers.DictField(help_text="Format, parts with classes and counts, columns, first rows, warnings.")
    sample_labels = serializers.SerializerMethodField(help_text="One for each sample image at `samples/<number>/`.")

    class Meta(DatasetVersionOutput.Meta):
        fields = [*DatasetVersionOutput.Meta.fields, "summary", "sample_labels"]

    def get_sample_labels(self, version: DatasetVersion) -> list[str]:
        return [sample["label"] for sample in version.samples]


class DatasetOutput(serializers.ModelSerializer[Dataset]):
    owner = serializers.CharField(source="owner.username")
    latest = serializers.SerializerMethodField(help_text="Newest version, which new jobs use.")

    class Meta:
        model = Dataset
        fields = ["id", "name", "kind", "description", "owner", "created_at", "latest"]

    @extend_schema_field(DatasetVersionOutput)
    def get_latest(self, dataset: Any) -> Any:
        return DatasetVersionOutput(dataset.latest[0]).data


class DatasetList(ListAPIView[Dataset]):
    """All datasets. POST registers one, or the next version of yours; small ones are checked before the response."""

    queryset = queries.datasets()
    serializer_class = DatasetOutput
    pagination_class = NamedPages
    parser_classes = PARSERS_WITH_FILES

    @extend_schema(request=DatasetInput, responses={201: DatasetOutput})
    def post(self, request: Request) -> Response:
        registration = actions.DatasetRegistration(**validated(DatasetInput, request.data))
        version = actions.register(signed_in(request), registration)
        return Response(DatasetOutput(queries.find_dataset(version.dataset.name)).data, status=201)


class DatasetView(ByReference, GenericAPIView[Dataset]):
    queryset = queries.datasets()
    serializer_class: Any = DatasetOutput
    what = "dataset"

    def version(self, number: int) -> DatasetVersion:
        return existing(queries.find_version(self.get_object(), number), "version of this dataset")


class DatasetDetail(DatasetView, RetrieveAPIView[Dataset]):
    @extend_schema(responses=_GONE)
    def delete(self, request: Request, reference: str) -> Response:
        """Delete the dataset with all versions and uploaded files. Refused if a job has used it."""
        actions.delete_dataset(signed_in(request), self.get_object())
        return Response(status=204)


class DatasetVersionList(ListAPIView[DatasetVersion]):
    queryset = DatasetVersion.objects.defer("samples")
    serializer_class = DatasetVersionOutput
    pagination_class = NumberedPages

    def filter_queryset(self, queryset: Any) -> Any:
        return queryset.filter(dataset=existing(queries.find_dataset(self.kwargs["reference"]), "dataset"))


class DatasetVersionView(DatasetView):
    """One version, with the findings of its check."""

    serializer_class = DatasetVersionDetail

    def get(self, request: Request, reference: str, number: int) -> Response:
        return Response(DatasetVersionDetail(self.version(number)).data)

    @extend_schema(responses=_GONE)
    def delete(self, request: Request, reference: str, number: int) -> Response:
        actions.delete_version(signed_in(request), self.version(number))
        return Response(status=204)


class DatasetCheck(DatasetView):
    """Check a version with problems again."""

    serializer_class = DatasetVersionDetail

    @extend_schema(request=None)
    def post(self, request: Request, reference: str, number: int) -> Response:
        version = self.version(number)
        actions.check_again(signed_in(request), version)
        return Response(DatasetVersionDetail(version).data)


class DatasetSample(DatasetView):
    """A sample image of a version."""

    @extend_schema(responses={(200, "image/*"): OpenApiTypes.BINARY})
    def get(self, request: Request, reference: str, number: int, index: int) -> HttpResponse:
        return _sample_response(self.version(number), index)


def _sample_response(version: DatasetVersion, index: int) -> HttpResponse:
    """Return the image with the content type of its bytes, regardless of its name."""
    if index >= len(version.samples):
        raise NotFound("Sample not found: the dataset may have been checked again. Reload the page.")
    sample = version.samples[index]
    content = base64.b64decode(sample["png"]) if sample["png"] else _content(version, sample["file"])
    kind = image_type(content)
    if kind is None:
        raise NotFound("The file is no longer an image: register the dataset again.")
    response = HttpResponse(content, content_type=CONTENT_TYPES[kind])
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["Cache-Control"] = "private, max-age=3600"
    return response


def _content(version: DatasetVersion, name: str) -> bytes:
    base = Path(version.path)
    gone = NotFound("The file is missing or unreadable: register the dataset again.")
    try:
        # The owner of the folder may have put a link there since the check.
        file = resolve_under(str(base if base.is_file() else base / name), settings.TIDEPOOL_DATA_ROOTS)
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (UserError, OSError) as error:
        raise gone from error
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            raise gone
        return stream.read(_MAX_BYTES)


_version = "datasets/<str:reference>/versions/<int:number>/"
urlpatterns = [
    path("datasets/", DatasetList.as_view(), name="datasets"),
    path("datasets/<str:reference>/", DatasetDetail.as_view(), name="dataset"),
    path("datasets/<str:reference>/versions/", DatasetVersionList.as_view(), name="dataset-versions"),
    path(_version, DatasetVersionView.as_view(), name="dataset-version"),
    path(f"{_version}check/", DatasetCheck.as_view(), name="dataset-check"),
    path(f"{_version}samples/<int:index>/", DatasetSample.as_view(), name="dataset-sample"),
]
