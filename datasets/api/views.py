"""`/api/v1/datasets/`."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from datasets import actions, queries
from datasets.api.serializers import DatasetInput, DatasetOutput, DatasetVersionOutput
from datasets.models import Dataset, DatasetVersion
from webapp.lib.rest import PARSERS_WITH_FILES, NamedPages, NumberedPages, found, signed_in

__all__ = ["DatasetDetail", "DatasetList", "DatasetVersionList"]


class DatasetList(ListAPIView[Dataset]):
    """All datasets; POST registers one, or the next version of one's own."""

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
        return Response(DatasetOutput(found(queries.find_dataset(reference), "dataset")).data)


class DatasetVersionList(ListAPIView[DatasetVersion]):
    serializer_class = DatasetVersionOutput
    pagination_class = NumberedPages

    def get_queryset(self) -> Any:
        if getattr(self, "swagger_fake_view", False):
            return DatasetVersion.objects.none()
        return queries.versions(found(queries.find_dataset(self.kwargs["reference"]), "dataset"))
