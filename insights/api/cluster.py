"""`/api/v1/cluster/`, `fair-share/`, `software/`: all GPUs now, each job's GPUs over time, and entitlements."""

import platform
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.charts import Band, Step
from core.dataclass_serializers import output_of
from core.downloads import Cell, csv_chunks, file_response
from core.rest import ObjectField, validated
from core.time import iso
from insights.cluster import STATUSES, cluster_live
from insights.cluster_trace import WINDOWS, Trace, all_changes, cluster_trace
from insights.fair_share import FairSharePage, GroupLine, JobLine, SharingPoolLine, fair_share_page
from jobs.actions.mlflow_client import supplied_modules
from jobs.actions.requirements import importable_modules
from workers.executor.environments.requirements import installed

__all__ = ["Cluster", "ClusterTrace", "ClusterTraceCsv", "FairShare", "Software"]

CSV_HEAD = ("time", "job", "name", "gpus", "why", "pause_ms")


class WindowQuery(serializers.Serializer[Any]):
    minutes = serializers.ChoiceField(choices=[minutes for _, minutes in WINDOWS], default=15)


class ClusterSlot(serializers.Serializer[Any]):
    key = serializers.CharField(help_text="`host:index`")
    index = serializers.IntegerField()
    model = serializers.CharField(help_text="Name of the device.")
    status = serializers.ChoiceField(choices=list(STATUSES))
    job = serializers.IntegerField(allow_null=True)
    label = serializers.CharField(allow_null=True, help_text="Name of the job, if you may see it.")  # type: ignore[assignment]
    owner = serializers.CharField(allow_null=True)
    training = serializers.BooleanField(help_text="false on a held GPU whose process starts, moves or ends.")
    held_since = serializers.CharField(allow_null=True)
    idle_since = serializers.CharField(allow_null=True, help_text="Time since which a held GPU has been idle.")
    utilisation_percent = serializers.FloatField(allow_null=True)
    memory_used_bytes = serializers.IntegerField(allow_null=True)
    memory_total_bytes = serializers.IntegerField(allow_null=True)


class ClusterHost(serializers.Serializer[Any]):
    host = serializers.CharField()
    state = serializers.CharField()
    virtual = serializers.BooleanField()
    slots = ClusterSlot(many=True)


class ClusterOutput(serializers.Serializer[Any]):
    counts = ObjectField(
        help_text="Number of GPUs that are `held`, of held ones that are `training`, and of each status."
    )
    hosts = ClusterHost(many=True)


class SoftwareOutput(serializers.Serializer[Any]):
    python = serializers.CharField(help_text="Version of Python, for example 3.11.7.")
    packages = ObjectField(help_text="Version of each package of the site, by name; hosts install the same ones.")
    modules = serializers.ListField(
        child=serializers.CharField(), help_text="Top-level modules that scripts can import."
    )
    mlflow_modules = serializers.ListField(
        child=serializers.CharField(), help_text="Those that the site adds to trainings whose code imports MLflow."
    )


class Moment(serializers.CharField):
    def to_representation(self, value: Any) -> Any:
        return iso(value)


class TraceStep(serializers.Serializer[Step]):
    at = Moment()
    slots = serializers.FloatField()


class TraceBand(serializers.Serializer[Band]):
    job = serializers.IntegerField(help_text="Id of the job; 0: the sum of several small jobs.")
    label = serializers.CharField()  # type: ignore[assignment]
    steps = TraceStep(many=True)


class TraceOutput(serializers.Serializer[Trace]):
    start = Moment()
    end = Moment()
    capacity = serializers.IntegerField()
    capacities = TraceStep(many=True, help_text="Capacity over time, from the beginning of its history.")
    held = TraceStep(many=True, help_text="GPUs that were held; those in no band were starting or ending.")
    changes = serializers.IntegerField(source="count", help_text="Number of changes in the window.")
    mean_seconds = serializers.FloatField(
        allow_null=True, help_text="Seconds that each step averages over; null: each step is a change."
    )
    bands = TraceBand(many=True)


FairShareOutput = output_of(
    FairSharePage,
    "FairShareOutput",
    without=["waits"],
    pools=output_of(
        SharingPoolLine,
        "SharedPoolOutput",
        groups=output_of(GroupLine, "GroupShareOutput", without=["total"])(many=True),
    )(many=True, help_text="Sets of instance groups that share GPUs."),
    jobs=output_of(JobLine, "JobShareOutput", without=["total"])(
        many=True, help_text="At most 100 jobs, those that hold most GPUs first."
    ),
    waiting=serializers.ListField(
        child=serializers.CharField(), help_text="Sentences about who waits for what; equal reasons are said once."
    ),
)


class Cluster(APIView):
    @extend_schema(responses=ClusterOutput)
    def get(self, request: Request) -> Response:
        """List every GPU, host by host. Other users' jobs have an id and no name."""
        return Response(ClusterOutput(cluster_live(request.user)).data)


class ClusterTrace(APIView):
    @extend_schema(parameters=[WindowQuery], responses=TraceOutput)
    def get(self, request: Request) -> Response:
        """List the GPUs of each job over time; as means if there were too many changes to draw."""
        return Response(TraceOutput(cluster_trace(request.user, timezone.now(), _minutes(request))).data)


class ClusterTraceCsv(APIView):
    @extend_schema(parameters=[WindowQuery], responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request) -> StreamingHttpResponse:
        """Return every change with its reason, the newest first, as a CSV file."""
        start = timezone.now() - timedelta(minutes=_minutes(request))
        rows: Iterator[list[Cell]] = (
            [iso(change.at), change.job, name, change.slots, change.text, change.pause_ms]
            for change, name in all_changes(request.user, start)
        )
        return file_response(request, csv_chunks(CSV_HEAD, rows), "cluster-trace.csv", "text/csv; charset=utf-8")


class FairShare(GenericAPIView[Any]):
    """The GPUs that each instance group and training is entitled to, holds, borrows and lends."""

    serializer_class = FairShareOutput
    pagination_class = None

    def get(self, request: Request) -> Response:
        return Response(FairShareOutput(fair_share_page(request.user)).data)


def _minutes(request: Request) -> int:
    return int(validated(WindowQuery, request.query_params)["minutes"])


class Software(APIView):
    """Versions that a client needs to send a function: pickles require the same Python and cloudpickle."""

    @extend_schema(responses=SoftwareOutput)
    def get(self, request: Request) -> Response:
        return Response(
            {
                "python": platform.python_version(),
                "packages": installed(),
                "modules": sorted(importable_modules()),
                "mlflow_modules": sorted(supplied_modules()),
            }
        )
