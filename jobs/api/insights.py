"""Insights about a job: the reason for its GPUs, the time left, and the files of its result."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.downloads import file_response
from core.rest import ListPages, found, signed_in, validated
from jobs.api.views import JobView
from jobs.files.result import code_files, file_chunks, result_files, shown_code
from jobs.insight.insights import time_left, why
from models_registry.api.serializers import FilesOutput

__all__ = ["JobCode", "JobEta", "JobFileDownload", "JobFiles", "JobWhy"]


class TermOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    value = serializers.CharField()
    job = serializers.IntegerField(allow_null=True, help_text="The other job that it is about, if you may see it.")


class RemedyOutput(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(["min_slots", "max_slots", "priority", "end"])
    value = serializers.IntegerField(allow_null=True, help_text="The new value; of an end the other job.")
    target = serializers.IntegerField(help_text="GPUs that it would then have.")
    starts_now = serializers.BooleanField()
    text = serializers.CharField()


class WhyOutput(serializers.Serializer[Any]):
    text = serializers.CharField()
    terms = TermOutput(many=True)
    remedies = RemedyOutput(many=True)


class EtaOutput(serializers.Serializer[Any]):
    earliest_seconds = serializers.FloatField(allow_null=True, help_text="From its newest step on; null: unknown.")
    latest_seconds = serializers.FloatField(allow_null=True)
    text = serializers.CharField(help_text="What it rests on, or why it is not known.")


class FileOutput(serializers.Serializer[Any]):
    path = serializers.CharField()
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
        return Response(why(self.job(), signed_in(request)))


class JobEta(JobView):
    @extend_schema(responses=EtaOutput)
    def get(self, request: Request, job: int) -> Response:
        """Estimate the time left, as a range."""
        return Response(time_left(self.job()))


class JobFiles(JobView):
    serializer_class = FileOutput
    pagination_class = ListPages

    @extend_schema(responses=FileOutput(many=True))
    def get(self, request: Request, job: int) -> Response:
        """List what the job has published: model, checkpoints, metrics. Its logs are listed below `logs/files/`."""
        files = result_files(self.job())
        return self.listed([dict(FileOutput(file).data) for file in files])


class JobFileDownload(JobView):
    @extend_schema(parameters=[FileQuery], responses={(200, "application/octet-stream"): OpenApiTypes.BINARY})
    def get(self, request: Request, job: int) -> StreamingHttpResponse:
        """Download one of these files."""
        asked = validated(FileQuery, request.query_params)
        path = asked["path"]
        chunks = file_chunks(self.job(), path)
        name = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "_" for letter in path)
        return file_response(request, chunks, name[-120:], "application/octet-stream")


class JobCode(JobView):
    @extend_schema(parameters=[CodeQuery], responses=FilesOutput)
    def get(self, request: Request, job: int) -> Response:
        """List the submitted files as the ranks see them now, with the text of one."""
        asked = validated(CodeQuery, request.query_params)
        row, name = self.job(), asked["file"]
        shown = found(shown_code(row, name), "file") if name else None
        listed = [asdict(file) for file in code_files(row)]
        return Response({"files": listed, "text": shown.text if shown else None})
