"""`/api/v1/audit/`, for administrators of the cluster."""

from __future__ import annotations

from typing import Any

from django.http import StreamingHttpResponse
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.audit.listing import COLUMNS, PERIODS, all_entries, audit_page, csv_row, parsed_filter
from core.csv_text import csv_chunks
from core.downloads import file_response
from core.models import AuditEntry
from core.rest import KeysetPages, ObjectField, keyset_answer, page_size_of
from core.roles import require_cluster_admin

__all__ = ["urlpatterns"]


class AuditQuery(serializers.Serializer[Any]):
    actor = serializers.CharField(required=False, help_text="Name of a user.")
    kind = serializers.CharField(required=False, help_text="Such as user, host or instance group.")
    key = serializers.CharField(required=False, help_text="Id of one thing of that kind.")
    search = serializers.CharField(required=False, help_text="Part of its name, or of what was done.")
    within = serializers.ChoiceField(list(PERIODS), required=False)
    since = serializers.DateTimeField(required=False, help_text="A day or a moment.")
    until = serializers.DateTimeField(required=False, help_text="A day or a moment, which is left out itself.")


class AuditOutput(serializers.ModelSerializer[AuditEntry]):
    before = ObjectField(help_text="Field -> value, of what differs only.")
    after = ObjectField(help_text="The same, as it was then.")

    class Meta:
        model = AuditEntry
        fields = ["id", "at", "actor", "verb", "kind", "key", "name", "before", "after"]


class AuditList(ListAPIView[AuditEntry]):
    serializer_class = AuditOutput
    pagination_class = KeysetPages

    @extend_schema(parameters=[AuditQuery])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Who changed what, the newest first."""
        require_cluster_admin(request.user)
        given = request.query_params.dict()
        page = audit_page(parsed_filter(given), given, page_size_of(given))
        return Response(keyset_answer(request, page, list(AuditOutput(page.rows, many=True).data)))


class AuditExport(GenericAPIView[AuditEntry]):
    pagination_class = None

    @extend_schema(parameters=[AuditQuery], responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request) -> StreamingHttpResponse:
        """All of it as CSV. Text that a spreadsheet would run begins with an apostrophe."""
        require_cluster_admin(request.user)
        entries = all_entries(parsed_filter(request.query_params.dict()))
        return file_response(
            request, csv_chunks(COLUMNS, map(csv_row, entries)), "audit.csv", "text/csv; charset=utf-8"
        )


urlpatterns = [
    path("audit/", AuditList.as_view(), name="audit"),
    path("audit/export/", AuditExport.as_view(), name="audit-export"),
]
