"""Insights about a job: the reason for its GPUs, the time left, and the files of its result."""

import re
from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.downloads import file_response
from core.outputs import output_of
from core.rest import ListPages, found, signed_in, validated
from jobs.api.views import JobView
from jobs.files.result import code_files, file_chunks, result_files, shown_code
from jobs.insight.eta import Eta, time_left
from jobs.insight.goodput import Outlook, goodput_outlook
from jobs.insight.why import Term, why
from jobs.queries.goodput import BatchNow
from models_registry.api import FilesOutput

__all__ = ["JobCode", "JobEta", "JobFileDownload", "JobFiles", "JobGoodput", "JobWhy"]


class RemedyOutput(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(["min_slots", "max_slots", "priority", "end"])
    value = serializers.IntegerField(allow_null=True, help_text="The new value; of an end the other job.")
    target = serializers.IntegerField(help_text="GPUs that it would then have.")
    starts_now = serializers.BooleanField()
    text = serializers.CharField()


class WhyOutput(serializers.Serializer[Any]):
    text = serializers.CharField()
    terms = output_of(Term)(many=True)
    remedies = RemedyOutput(many=True)


class EtaOutput(serializers.Serializer[Eta]):
    earliest_seconds = serializers.FloatField(
        source="earliest", allow_null=True, help_text="From its newest step on; null: unknown."
    )
    latest_seconds = serializers.FloatField(source="latest", allow_null=True)
    text = serializers.CharField(help_text="What it rests on, or why it is not known.")


GoodputOutput = output_of(
    Outlook,
    "GoodputOutput",
    batch_now=output_of(BatchNow, without=["bounds"])(
        allow_null=True, help_text="As it was told last; null: it has no GPU, or its batch does not adapt."
    ),
)


class FileOutput(serializers.Serializer[Any]):
    path = serializers.CharField(help_text="To download it by; also its name in the zip file of the result.")
    attempt = serializers.IntegerField(allow_null=True, help_text="Null: in the folder that all attempts share.")
    size_bytes = serializers.IntegerField()
    modified_at = serializers.DateTimeField()


class FileQuery(serializers.Serializer[Any]):
    path = serializers.CharField(max_length=4096, trim_whitespace=False)


class CodeQuery(serializers.Serializer[Any]):
    file = serializers.CharField(
        default="", max_length=4096, trim_whitespace=False, help_text="Whose text is wanted; absent: none."
    )


class JobWhy(JobView):
    @extend_schema(responses=WhyOutput)
    def get(self, request: Request, job: int) -> Response:
        """Explain the job's reason: its arithmetic, and what would change it by the scheduler's own decision."""
        return Response(why(self.get_object(), signed_in(request)))


class JobEta(JobView):
    @extend_schema(responses=EtaOutput)
    def get(self, request: Request, job: int) -> Response:
        """Estimate the time left, as a range."""
        return Response(EtaOutput(time_left(self.get_object())).data)


class JobGoodput(JobView):
    @extend_schema(responses=GoodputOutput)
    def get(self, request: Request, job: int) -> Response:
        """Return what more or fewer GPUs would do for the training, by what was measured of its steps."""
        return Response(GoodputOutput(goodput_outlook(self.get_object())).data)


class JobFiles(JobView, ListAPIView[Any]):
    """List what each attempt has written, in RESULT_DIR, LOG_DIR and the working folder. Logs: `logs/files/`."""

    serializer_class = FileOutput
    pagination_class = ListPages

    def get_queryset(self) -> Any:
        return result_files(self.get_object())


class JobFileDownload(JobView):
    @extend_schema(parameters=[FileQuery], responses={(200, "application/octet-stream"): OpenApiTypes.BINARY})
    def get(self, request: Request, job: int) -> StreamingHttpResponse:
        """Download one of these files."""
        path = validated(FileQuery, request.query_params)["path"]
        name = re.sub(r"[^A-Za-z0-9._-]", "_", path)[-120:]
        return file_response(request, file_chunks(self.get_object(), path), name, "application/octet-stream")


class JobCode(JobView):
    @extend_schema(parameters=[CodeQuery], responses=FilesOutput)
    def get(self, request: Request, job: int) -> Response:
        """List the submitted files as the ranks see them now, with the text of one."""
        row, name = self.get_object(), validated(CodeQuery, request.query_params)["file"]
        text = found(shown_code(row, name), "file").text if name else None
        return Response(FilesOutput({"files": code_files(row), "text": text}).data)
