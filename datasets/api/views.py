"""`/api/v1/datasets/`."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.rest import PARSERS_WITH_FILES, NamedPages, NumberedPages, found, signed_in
from datasets import actions, queries
from datasets.api.serializers import DatasetInput, DatasetOutput, DatasetVersionDetail, DatasetVersionOutput
from datasets.models import Dataset, DatasetVersion
from datasets.samples import sample_response

__all__ = ["DatasetCheck", "DatasetDetail", "DatasetList", "DatasetSample", "DatasetVersionList", "DatasetVersionView"]

_GONE = {204: OpenApiResponse(description="It is deleted.")}


class DatasetList(ListAPIView[Dataset]):
    """All datasets; POST registers one, or the next version of one's own. Small ones are checked before it answers."""

    serializer_class = DatasetOutput
    pagination_class = NamedPages
    parser_classes = PARSERS_WITH_FILES

    def get_queryset(self) -> Any:
        return queries.datasets()

    @extend_schema(request=DatasetInput, responses={201: DatasetOutput})
    def post(self, request: Request) -> Response:
        given = DatasetInput(data=request.data)
        given.is_valid(raise_exception=True)
        version = actions.register(signed_in(request), given.registration())
        return Response(DatasetOutput(queries.find_dataset(version.dataset.name)).data, status=201)


class DatasetDetail(GenericAPIView[Dataset]):
    serializer_class = DatasetOutput

    def get(self, request: Request, reference: str) -> Response:
        return Response(DatasetOutput(_dataset(reference)).data)

    @extend_schema(responses=_GONE)
    def delete(self, request: Request, reference: str) -> Response:
        """With all versions and uploaded files. Refused while a job has used it."""
        actions.delete_dataset(signed_in(request), _dataset(reference))
        return Response(status=204)


class DatasetVersionList(ListAPIView[DatasetVersion]):
    serializer_class = DatasetVersionOutput
    pagination_class = NumberedPages

    def get_queryset(self) -> Any:
        if getattr(self, "swagger_fake_view", False):
            return DatasetVersion.objects.none()
        return queries.versions(_dataset(self.kwargs["reference"]))


class DatasetVersionView(GenericAPIView[DatasetVersion]):
    """One version, with what its check has found."""

    serializer_class = DatasetVersionDetail

    def get(self, request: Request, reference: str, number: int) -> Response:
        return Response(DatasetVersionDetail(_version(reference, number)).data)

    @extend_schema(responses=_GONE)
    def delete(self, request: Request, reference: str, number: int) -> Response:
        actions.delete_version(signed_in(request), _version(reference, number))
        return Response(status=204)


class DatasetCheck(GenericAPIView[DatasetVersion]):
    """Check a version again whose check found problems."""

    serializer_class = DatasetVersionDetail

    @extend_schema(request=None)
    def post(self, request: Request, reference: str, number: int) -> Response:
        version = _version(reference, number)
        actions.check_again(signed_in(request), version)
        return Response(DatasetVersionDetail(version).data)


class DatasetSample(GenericAPIView[DatasetVersion]):
    """A sample image of a version."""

    @extend_schema(responses={(200, "image/*"): OpenApiTypes.BINARY})
    def get(self, request: Request, reference: str, number: int, index: int) -> HttpResponse:
        return sample_response(_version(reference, number), index)


def _dataset(reference: str) -> Dataset:
    dataset: Dataset = found(queries.find_dataset(reference), "dataset")
    return dataset


def _version(reference: str, number: int) -> DatasetVersion:
    version: DatasetVersion = found(queries.find_version(_dataset(reference), number), "version of this dataset")
    return version
