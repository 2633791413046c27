"""Files of a job: results of its attempts, and its code."""

from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.downloads import STORED_FILE, stored_file_response
from core.errors import existing
from core.rest import ListPages, validated
from jobs.api.views import JobView
from jobs.files.result_files import code_files, open_result, result_files, shown_code
from models_registry.api import FilesOutput

__all__ = ["JobCode", "JobFileDownload", "JobFiles"]


class FileOutput(serializers.Serializer[Any]):
    path = serializers.CharField(help_text="Path for the download, and name in the zip file of the result.")
    attempt = serializers.IntegerField(
        allow_null=True, help_text="Null: in the working folder, which all attempts share."
    )
    size_bytes = serializers.IntegerField()
    modified_at = serializers.DateTimeField()


class FileQuery(serializers.Serializer[Any]):
    path = serializers.CharField(max_length=4096, trim_whitespace=False)


class CodeQuery(serializers.Serializer[Any]):
    file = serializers.CharField(
        default="", max_length=4096, trim_whitespace=False, help_text="File whose text to return; absent: none."
    )


class JobFiles(JobView, ListAPIView[Any]):
    """List the files that attempts wrote to RESULT_DIR, LOG_DIR and the working folder. Logs: `logs/files/`."""

    serializer_class = FileOutput
    pagination_class = ListPages

    def get_queryset(self) -> Any:
        return result_files(self.get_object())


class JobFileDownload(JobView):
    @extend_schema(parameters=[FileQuery], responses=STORED_FILE)
    def get(self, request: Request, job: int) -> StreamingHttpResponse:
        """Download one of these files, or the part of it that the header `Range` asks for."""
        path = validated(FileQuery, request.query_params)["path"]
        return stored_file_response(request, open_result(self.get_object(), path), path.rpartition("/")[2])


class JobCode(JobView):
    @extend_schema(parameters=[CodeQuery], responses=FilesOutput)
    def get(self, request: Request, job: int) -> Response:
        """List the submitted files as the ranks see them now, with the text of one."""
        row, name = self.get_object(), validated(CodeQuery, request.query_params)["file"]
        text = existing(shown_code(row, name), "file").text if name else None
        return Response(FilesOutput({"files": code_files(row), "text": text}).data)
