"""All jobs of a list at once: as CSV, and the same wish for many of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.actions.bulk import MAX_JOBS, cancel_many, change_priority_of_many
from jobs.api.listing import JobQuery
from jobs.api.views import file_response
from jobs.export import COLUMNS, job_row
from jobs.listing import all_pages, parsed_filter
from jobs.models import Job
from webapp.lib.csv_text import csv_chunks
from webapp.lib.errors import field_error
from webapp.lib.rest import signed_in

__all__ = ["JobBulk", "JobExport"]

_BIGGEST_ID = 2**63 - 1


class BulkInput(serializers.Serializer[Any]):
    action = serializers.ChoiceField(["cancel", "priority"])
    jobs = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=_BIGGEST_ID), help_text=f"Ids, at most {MAX_JOBS}."
    )
    priority = serializers.IntegerField(required=False, help_text="1 to 10000, for the action `priority`.")


class RefusalOutput(serializers.Serializer[Any]):
    job = serializers.IntegerField()
    name = serializers.CharField()
    error = serializers.CharField(source="sentence")
    code = serializers.CharField()


class BulkOutput(serializers.Serializer[Any]):
    done = serializers.ListField(child=serializers.IntegerField())
    refused = RefusalOutput(many=True)


class JobBulk(GenericAPIView[Job]):
    serializer_class: type[serializers.BaseSerializer[Any]] = BulkOutput

    @extend_schema(request=BulkInput, responses=BulkOutput)
    def post(self, request: Request) -> Response:
        """Stop many jobs, or give them a priority. Those that refuse are listed with the reason; the others go on."""
        given = BulkInput(data=request.data)
        given.is_valid(raise_exception=True)
        values, user = given.validated_data, signed_in(request)
        if values["action"] == "cancel":
            return Response(BulkOutput(asdict(cancel_many(values["jobs"], user))).data)
        if "priority" not in values:
            raise field_error("priority", "Give the priority that they shall have.")
        return Response(BulkOutput(asdict(change_priority_of_many(values["jobs"], values["priority"], user))).data)


class JobExport(GenericAPIView[Job]):
    pagination_class = None

    @extend_schema(parameters=[JobQuery], responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request) -> StreamingHttpResponse:
        """Every job of the list as CSV. Text that a spreadsheet would run begins with an apostrophe."""
        jobs = all_pages(signed_in(request), parsed_filter(request.query_params.dict()))
        return file_response(request, csv_chunks(COLUMNS, map(job_row, jobs)), "jobs.csv", "text/csv; charset=utf-8")
