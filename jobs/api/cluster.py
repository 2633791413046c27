"""`/api/v1/cluster/`: every GPU now, and the GPUs of each job over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.charts import Step
from core.csv_text import Cell, csv_chunks
from core.downloads import file_response
from core.rest import ObjectField, validated
from core.time import iso
from jobs.insight.cluster import STATUSES, cluster_live
from jobs.insight.trace import WINDOWS, all_changes, cluster_trace

__all__ = ["Cluster", "ClusterTrace", "ClusterTraceCsv"]

CSV_HEAD = ("time", "job", "name", "gpus", "why", "pause_ms")


class WindowQuery(serializers.Serializer[Any]):
    minutes = serializers.ChoiceField(choices=[minutes for _, minutes in WINDOWS], default=15)


class ClusterSlot(serializers.Serializer[Any]):
    key = serializers.CharField(help_text="`host:index`")
    index = serializers.IntegerField()
    model = serializers.CharField(help_text="The device.")
    status = serializers.ChoiceField(choices=list(STATUSES))
    job = serializers.IntegerField(allow_null=True)
    label = serializers.CharField(allow_null=True, help_text="Name of the job, if you may see it.")  # type: ignore[assignment]
    owner = serializers.CharField(allow_null=True)
    held_since = serializers.CharField(allow_null=True)
    idle_since = serializers.CharField(allow_null=True, help_text="Since when a held GPU has done nothing.")
    utilisation_percent = serializers.FloatField(allow_null=True)
    memory_used_bytes = serializers.IntegerField(allow_null=True)
    memory_total_bytes = serializers.IntegerField(allow_null=True)


class ClusterHost(serializers.Serializer[Any]):
    host = serializers.CharField()
    state = serializers.CharField()
    virtual = serializers.BooleanField()
    slots = ClusterSlot(many=True)


class ClusterOutput(serializers.Serializer[Any]):
    counts = ObjectField(help_text="Status -> how many GPUs.")
    hosts = ClusterHost(many=True)


class TraceStep(serializers.Serializer[Any]):
    at = serializers.CharField()
    slots = serializers.FloatField()


class TraceBand(serializers.Serializer[Any]):
    job = serializers.IntegerField(help_text="0: several small jobs as one.")
    label = serializers.CharField()  # type: ignore[assignment]
    steps = TraceStep(many=True)


class TraceOutput(serializers.Serializer[Any]):
    start = serializers.CharField()
    end = serializers.CharField()
    capacity = serializers.IntegerField()
    capacities = TraceStep(many=True, help_text="The capacity as it was, from where its history begins.")
    changes = serializers.IntegerField(help_text="How many there were.")
    mean_seconds = serializers.FloatField(allow_null=True, help_text="Each step is a mean over so many seconds.")
    bands = TraceBand(many=True)


class Cluster(APIView):
    @extend_schema(responses=ClusterOutput)
    def get(self, request: Request) -> Response:
        """Every GPU, host by host. Other users' jobs have a number and no name."""
        return Response(ClusterOutput(cluster_live(request.user)).data)


class ClusterTrace(APIView):
    @extend_schema(parameters=[WindowQuery], responses=TraceOutput)
    def get(self, request: Request) -> Response:
        """How many GPUs each job had over time; means where there were too many changes to draw."""
        trace = cluster_trace(request.user, timezone.now(), _minutes(request))
        bands = [{"job": band.job, "label": band.label, "steps": _steps(band.steps)} for band in trace.bands]
        shown: dict[str, Any] = {
            "start": iso(trace.start),
            "end": iso(trace.end),
            "capacity": trace.capacity,
            "changes": trace.count,
        }
        shown |= {"capacities": _steps(trace.capacities), "mean_seconds": trace.mean_seconds, "bands": bands}
        return Response(TraceOutput(shown).data)


class ClusterTraceCsv(APIView):
    @extend_schema(parameters=[WindowQuery], responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request) -> StreamingHttpResponse:
        """Every change with its reason, the newest first, as a file."""
        start = timezone.now() - timedelta(minutes=_minutes(request))
        rows: Iterator[list[Cell]] = (
            [iso(change.at), change.job, name, change.slots, change.text, change.pause_ms]
            for change, name in all_changes(request.user, start)
        )
        return file_response(request, csv_chunks(CSV_HEAD, rows), "cluster-trace.csv", "text/csv; charset=utf-8")


def _steps(steps: Iterable[Step]) -> list[dict[str, Any]]:
    return [{"at": iso(step.at), "slots": step.slots} for step in steps]


def _minutes(request: Request) -> int:
    asked = validated(WindowQuery, request.query_params)
    return int(asked["minutes"])
