"""`/api/v1/jobs/differences/`: settings and results of several jobs side by side."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.rest import signed_in
from insights.differences import MOST_JOBS, results_of, settings_of
from insights.job_numbers import chosen_jobs
from insights.ran_differences import ran_columns
from jobs.models import Job

__all__ = ["JobDifferences"]


class DifferenceOutput(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(
        ["setting", "metric"], help_text="`setting` for settings and parameters, `metric` for results."
    )
    name = serializers.CharField()
    differs = serializers.BooleanField()
    values = serializers.ListField(
        child=serializers.JSONField(allow_null=True),
        help_text="Value of each job, in the order of `jobs`; null if it has none.",
    )


class DifferencesOutput(serializers.Serializer[Any]):
    jobs = serializers.ListField(child=serializers.IntegerField())
    columns = DifferenceOutput(many=True)


class JobDifferences(GenericAPIView[Job]):
    queryset = Job.objects.none()
    pagination_class = None

    @extend_schema(
        operation_id="jobs_differences",
        parameters=[OpenApiParameter("jobs", OpenApiTypes.STR, required=True, description=f"1,2,3: 2 to {MOST_JOBS}.")],
        responses=DifferencesOutput,
    )
    def get(self, request: Request) -> Response:
        """Return code, environment, settings, parameters and results of these jobs side by side, and what differs."""
        jobs = chosen_jobs(signed_in(request), request.query_params.get("jobs", ""), most=MOST_JOBS)
        columns = [*ran_columns(jobs), *settings_of(jobs), *results_of(jobs)]
        return Response(DifferencesOutput({"jobs": [job.pk for job in jobs], "columns": columns}).data)
