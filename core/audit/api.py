"""REST API below `/api/v1/audit/`, for cluster administrators."""

from typing import Any

from django.http import StreamingHttpResponse
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.audit.listing import COLUMNS, AuditFilter, all_entries, audit_page, csv_row
from core.downloads import csv_chunks, file_response
from core.models import AuditEntry
from core.rest import Filters, ObjectField, Pages, keyset_answer, page_size_of
from core.roles import require_cluster_admin

__all__ = ["urlpatterns"]


class AuditOutput(serializers.ModelSerializer[AuditEntry]):
    before = ObjectField(help_text="Field -> old value, for changed fields only.")
    after = ObjectField(help_text="Field -> new value, for changed fields only.")

    class Meta:
        model = AuditEntry
        fields = ["id", "at", "actor", "verb", "kind", "key", "name", "before", "after"]


class AuditList(ListAPIView[AuditEntry]):
    serializer_class = AuditOutput
    queryset = AuditEntry.objects.all()
    pagination_class = Pages
    refuses_with = (403,)
    filter_backends = [Filters]
    filterset_class = AuditFilter

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List changes with their authors, newest first."""
        require_cluster_admin(request.user)
        given = request.query_params.dict()
        page = audit_page(AuditFilter(given), given, page_size_of(given))
        return Response(keyset_answer(request, page, list(AuditOutput(page.rows, many=True).data)))


class AuditExport(GenericAPIView[AuditEntry]):
    queryset = AuditEntry.objects.all()
    pagination_class = None
    refuses_with = (403,)
    filter_backends = [Filters]
    filterset_class = AuditFilter

    @extend_schema(filters=True, responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request) -> StreamingHttpResponse:
        """Return all entries as CSV. Text that a spreadsheet would evaluate is prefixed with an apostrophe."""
        require_cluster_admin(request.user)
        entries = all_entries(AuditFilter(request.query_params.dict()))
        return file_response(
            request, csv_chunks(COLUMNS, map(csv_row, entries)), "audit.csv", "text/csv; charset=utf-8"
        )


urlpatterns = [
    path("audit/", AuditList.as_view(), name="audit"),
    path("audit/export/", AuditExport.as_view(), name="audit-export"),
]
