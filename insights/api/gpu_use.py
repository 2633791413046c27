"""`/api/v1/jobs/<job>/gpus/` and `cluster/gpus/`: how busy GPUs were over time, and their memory."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.rest import validated
from core.time import iso
from insights.api.cluster import Moment, WindowQuery
from insights.gpu_use import GpuUse, Line, Mark, cluster_use, job_use
from jobs.api.views import JobView
from jobs.control.gpu_spans import Span
from jobs.gpu_time import moment

__all__ = ["ClusterGpus", "JobGpus"]


class UnixMilliseconds(serializers.CharField):
    def to_representation(self, value: Any) -> Any:
        return iso(moment(value))


class GpuSpanOutput(serializers.Serializer[Span]):
    start = UnixMilliseconds()
    end = UnixMilliseconds()
    busy_percent = serializers.FloatField(allow_null=True, help_text="Mean utilization; null: not reported.")
    memory_bytes = serializers.IntegerField(allow_null=True, help_text="Most memory in use at a reading.")


class GpuLineOutput(serializers.Serializer[Line]):
    name = serializers.CharField(help_text="`host:index`; the name of a host where there are more than 64 GPUs.")
    memory_total_bytes = serializers.IntegerField(allow_null=True)
    spans = GpuSpanOutput(many=True, help_text="Only while a training held the GPU.")


class GpuMarkOutput(serializers.Serializer[Mark]):
    at = Moment()
    text = serializers.CharField()


class GpuUseOutput(serializers.Serializer[GpuUse]):
    start = Moment()
    end = Moment()
    span_seconds = serializers.IntegerField(help_text="Length of the longest spans.")
    lines = GpuLineOutput(many=True)
    left_out = serializers.IntegerField(help_text="Number of lines beyond the limit.")
    marks = GpuMarkOutput(many=True, help_text="Resizes and losses; for the cluster, changes of its hosts.")


class JobGpus(JobView):
    @extend_schema(responses=GpuUseOutput)
    def get(self, request: Request, job: int) -> Response:
        """List the utilization and memory of the training's GPUs over time, while it held them.

        Means of 10 seconds for an hour, of a minute for two days, and of 15 minutes for 90 days.
        """
        return Response(GpuUseOutput(job_use(self.get_object(), timezone.now())).data)


class ClusterGpus(APIView):
    @extend_schema(parameters=[WindowQuery], responses=GpuUseOutput)
    def get(self, request: Request) -> Response:
        """List the utilization and memory of all held GPUs over time."""
        minutes = int(validated(WindowQuery, request.query_params)["minutes"])
        return Response(GpuUseOutput(cluster_use(timezone.now(), minutes)).data)
