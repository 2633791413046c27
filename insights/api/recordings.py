"""Recordings of a rank: flame graphs and traces, and their files."""

import json
from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.dataclass_serializers import output_of
from core.downloads import STORED_FILE, file_response, stored_file_response
from core.errors import NotFound
from core.rest import signed_in, validated
from insights.recordings.flame import Flame, flame_of, speedscope
from insights.recordings.states import recorded
from insights.recordings.trace import StepTrace, trace_of
from jobs.actions.recordings import LIMITS, request_recording
from jobs.api.views import JobView
from jobs.files.recordings import open_trace

__all__ = ["JobFlame", "JobFlameFile", "JobTrace", "JobTraceFile"]

FlameOutput = output_of(Flame)
StepTraceOutput = output_of(StepTrace)
_LARGEST_RANK = 2**31 - 1


def _amount(kind: Any, default: int, help_text: str) -> serializers.IntegerField:
    _, least, most = LIMITS[kind]
    return serializers.IntegerField(min_value=least, max_value=most, default=default, help_text=help_text)


def _rank() -> serializers.IntegerField:
    return serializers.IntegerField(min_value=0, max_value=_LARGEST_RANK, default=0, help_text="Rank to record.")


class FlameInput(serializers.Serializer[Any]):
    rank = _rank()
    seconds = _amount("flame", 10, "Time of recording.")
    native = serializers.BooleanField(default=False, help_text="Whether to record functions of C, too, by py-spy.")


class TraceInput(serializers.Serializer[Any]):
    rank = _rank()
    steps = _amount("trace", 3, "Optimizer steps to record.")


class JobFlame(JobView):
    @extend_schema(responses=FlameOutput)
    def get(self, request: Request, job: int) -> Response:
        """Return the newest flame graph as a table of the main thread's functions."""
        return Response(FlameOutput(flame_of(self.get_object())).data)

    @extend_schema(request=FlameInput, responses={202: FlameOutput})
    def post(self, request: Request, job: int) -> Response:
        """Have a rank record a flame graph. GET returns it once the seconds are over."""
        given = validated(FlameInput, request.data)
        self.get_object()
        actor = signed_in(request).get_username()
        request_recording(job, actor, "flame", given["rank"], given["seconds"], native=given["native"])
        return Response(FlameOutput(flame_of(self.get_object())).data, status=202)


class JobFlameFile(JobView):
    @extend_schema(responses={(200, "application/json"): OpenApiResponse(OpenApiTypes.OBJECT, "The file.")})
    def get(self, request: Request, job: int) -> StreamingHttpResponse:
        """Download the newest flame graph, with all threads, in speedscope's form."""
        row = self.get_object()
        found = recorded(row, "flame")
        if found.answer is None or found.recording is None:
            raise NotFound("The training has no flame graph: have one recorded first.")
        name = f"{row.name}, rank {found.recording.rank}"
        content = json.dumps(speedscope(found, name)).encode()
        return file_response(request, iter([content]), f"training-{row.pk}.speedscope.json", "application/json")


class JobTrace(JobView):
    @extend_schema(responses=StepTraceOutput)
    def get(self, request: Request, job: int) -> Response:
        """Return the newest trace: its longest operators, and how busy processor and GPU were."""
        return Response(StepTraceOutput(trace_of(self.get_object())).data)

    @extend_schema(request=TraceInput, responses={202: StepTraceOutput})
    def post(self, request: Request, job: int) -> Response:
        """Have a rank record its next optimizer steps by torch.profiler. GET returns what came of it."""
        given = validated(TraceInput, request.data)
        self.get_object()
        request_recording(job, signed_in(request).get_username(), "trace", given["rank"], given["steps"])
        return Response(StepTraceOutput(trace_of(self.get_object())).data, status=202)


class JobTraceFile(JobView):
    @extend_schema(responses=STORED_FILE)
    def get(self, request: Request, job: int) -> StreamingHttpResponse:
        """Download the newest trace in Chrome's form, compressed by gzip, which Perfetto opens."""
        row = self.get_object()
        found = recorded(row, "trace")
        descriptor = None
        if found.answer is not None and found.recording is not None:
            descriptor = open_trace(row, found.recording)
        if descriptor is None:
            raise NotFound("The training has no trace: have one recorded first.")
        return stored_file_response(request, descriptor, f"training-{row.pk}.trace.json.gz", "application/gzip")
