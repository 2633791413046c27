"""`/api/v1/job-filters/`: the user's saved filters of the list of jobs."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.rest import NamedPages, signed_in, validated
from jobs.actions.saved_filters import forget_filter, save_filter
from jobs.models import SavedFilter

__all__ = ["SavedFilterDetail", "SavedFilterList"]


class SavedFilterInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    parameters = serializers.CharField(
        max_length=10_000, help_text="As an address of `jobs/` has them: `state=FAILED&within=7d`."
    )


class SavedFilterOutput(serializers.ModelSerializer[SavedFilter]):
    class Meta:
        model = SavedFilter
        fields = ["id", "name", "parameters", "created_at"]


class SavedFilterList(ListAPIView[SavedFilter]):
    """The user's saved filters of the list of jobs."""

    serializer_class = SavedFilterOutput
    pagination_class = NamedPages
    queryset = SavedFilter.objects.none()

    def get_queryset(self) -> Any:
        return SavedFilter.objects.filter(owner=signed_in(self.request))

    @extend_schema(request=SavedFilterInput, responses={201: SavedFilterOutput})
    def post(self, request: Request) -> Response:
        given = validated(SavedFilterInput, request.data)
        parameters = dict(parse_qsl(given["parameters"]))
        saved = save_filter(signed_in(request), given["name"], parameters)
        return Response(SavedFilterOutput(saved).data, status=201)


class SavedFilterDetail(GenericAPIView[SavedFilter]):
    serializer_class = SavedFilterOutput

    @extend_schema(responses={204: OpenApiResponse(description="It is forgotten.")})
    def delete(self, request: Request, filter_id: int) -> Response:
        forget_filter(signed_in(request), filter_id)
        return Response(status=204)
