"""`/api/v1/jobs/{id}/logs/`: raw text, styled lines, search, and whole files."""

from dataclasses import asdict
from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.dataclass_serializers import output_of
from core.downloads import file_response
from core.rest import ListPages, validated
from jobs.api.views import JobView
from jobs.files.job_folder import safe_name
from jobs.files.log_lines import Line, Lines, Span, lines_after, lines_before
from jobs.files.log_tail import log_topic
from jobs.files.logs import STREAMS, Log, LogPiece, find_log, log_content, log_list, read_log
from jobs.files.result_files import log_chunks, result_name
from jobs.files.search import MAX_NEEDLE, Match, Matches, search_logs

__all__ = ["JobLogDownload", "JobLogFiles", "JobLogLines", "JobLogSearch", "JobLogs", "rank_field"]

_MAX_OFFSET = 2**62


def rank_field(absent: str) -> serializers.CharField:
    return serializers.CharField(
        default="", allow_blank=True, max_length=128, help_text=f"Rank id or number; absent: {absent}."
    )


def _offset(help_text: str) -> serializers.IntegerField:
    return serializers.IntegerField(default=None, min_value=0, max_value=_MAX_OFFSET, help_text=help_text)


class LogQuery(serializers.Serializer[Any]):
    rank = rank_field("rank 0")
    stream = serializers.ChoiceField(STREAMS, default="stdout")
    after = _offset("Byte offset; absent: the end of the log.")


class LogOutput(serializers.Serializer[LogPiece]):
    rank = serializers.CharField(allow_null=True)
    stream = serializers.CharField()
    text = serializers.CharField()
    next = serializers.IntegerField(help_text="Offset of the next request.")


class _AttemptQuery(serializers.Serializer[Any]):
    attempt = serializers.IntegerField(
        default=None, min_value=0, max_value=2**31 - 1, help_text="Absent: the newest attempt with this rank."
    )


class LinesQuery(_AttemptQuery):
    rank = rank_field("rank 0")
    stream = serializers.ChoiceField(STREAMS, default="stdout")
    after = _offset("Lines from this byte offset on, which is the beginning of a line.")
    before = _offset("Lines up to this byte offset. Neither: the end of the log.")


LineOutput = output_of(Line, spans=output_of(Span, "LogSpanOutput")(many=True))
LinesOutput = output_of(
    Lines,
    attempt=serializers.IntegerField(),
    rank=serializers.CharField(),
    stream=serializers.CharField(),
    lines=LineOutput(many=True),
    unfinished=LineOutput(allow_null=True, help_text="Last line of the log, if it is still being written."),
)


@extend_schema_field(OpenApiTypes.STR)
class TopicField(serializers.Field[Any, Any, Any, Any]):
    def to_representation(self, value: Log) -> str:
        return log_topic(self.context["view"].kwargs["job"], value)


class LogFileOutput(serializers.Serializer[Log]):
    attempt = serializers.IntegerField()
    rank = serializers.CharField(source="member_id", help_text="Rank id.")
    number = serializers.IntegerField(
        source="rank", allow_null=True, help_text="Current rank number; null: not in a generation."
    )
    generation = serializers.IntegerField(help_text="Newest generation of the rank.")
    host = serializers.CharField()
    stream = serializers.CharField()
    has_ended = serializers.BooleanField()
    size_bytes = serializers.IntegerField()
    topic = TopicField(source="*", help_text="Websocket topic of new lines, from `size` of the lines on.")


class SearchQuery(_AttemptQuery):
    rank = rank_field("all ranks")
    stream = serializers.ChoiceField(["", *STREAMS], default="", help_text="Absent: both.")
    q = serializers.CharField(max_length=MAX_NEEDLE, trim_whitespace=False, help_text="a to z match A to Z.")
    number = serializers.IntegerField(
        default=1, min_value=1, max_value=2**31 - 1, help_text="Number of the match to find, from 1."
    )


class MatchOutput(serializers.Serializer[Match]):
    attempt = serializers.IntegerField(source="log.attempt")
    rank = serializers.CharField(source="log.member_id")
    stream = serializers.CharField(source="log.stream")
    at = serializers.IntegerField(help_text="Byte offset of the match's line.")
    nth = serializers.IntegerField(help_text="Number of the match within its line, from 0.")


class LogSearchOutput(serializers.Serializer[Matches]):
    count = serializers.IntegerField()
    is_complete = serializers.BooleanField(help_text="False: the search took too long and stopped.")
    match = MatchOutput(allow_null=True)


class DownloadQuery(_AttemptQuery):
    rank = rank_field("all logs, as a zip file")
    stream = serializers.ChoiceField(STREAMS, default="stdout")


class JobLogs(JobView):
    @extend_schema(parameters=[LogQuery], responses=LogOutput)
    def get(self, request: Request, job: int) -> Response:
        """Return raw text, in pieces."""
        return Response(LogOutput(read_log(self.get_object(), **validated(LogQuery, request.query_params))).data)


class JobLogFiles(JobView, ListAPIView[Any]):
    """List the logs of every attempt."""

    serializer_class = LogFileOutput
    pagination_class = ListPages

    def get_queryset(self) -> Any:
        return log_list(self.get_object())


class JobLogLines(JobView):
    @extend_schema(parameters=[LinesQuery], responses=LinesOutput)
    def get(self, request: Request, job: int) -> Response:
        """Return lines without escape sequences; styles are given beside the text."""
        asked = validated(LinesQuery, request.query_params)
        after, before = asked.pop("after"), asked.pop("before")
        log = find_log(self.get_object(), **asked)
        with log.opened() as descriptor:
            if descriptor is None:
                lines = Lines(0, 0, 0)
            else:
                lines = lines_before(descriptor, before) if after is None else lines_after(descriptor, after)
        return Response({"attempt": log.attempt, "rank": log.member_id, "stream": log.stream, **asdict(lines)})


class JobLogSearch(JobView):
    @extend_schema(parameters=[SearchQuery], responses=LogSearchOutput)
    def get(self, request: Request, job: int) -> Response:
        """Count and locate a text in whole logs of any length."""
        asked = validated(SearchQuery, request.query_params)
        needle, number = asked.pop("q"), asked.pop("number")
        return Response(LogSearchOutput(search_logs(log_list(self.get_object(), **asked), needle, number)).data)


class JobLogDownload(JobView):
    @extend_schema(parameters=[DownloadQuery], responses={(200, "text/plain"): OpenApiTypes.BINARY})
    def get(self, request: Request, job: int) -> StreamingHttpResponse:
        """Download one log; without `rank`, all logs of every attempt as a zip file."""
        asked = validated(DownloadQuery, request.query_params)
        row = self.get_object()
        if not asked["rank"]:
            return file_response(request, log_chunks(row), result_name(row).replace(".zip", "-logs.zip"))
        log = find_log(row, **asked)
        name = safe_name(f"job-{row.pk}-{log.attempt}-{log.member_id}-{log.stream}.log").replace('"', "_")
        name = "".join(letter if letter.isascii() else "_" for letter in name)
        return file_response(request, log_content(log), name, "text/plain; charset=utf-8")
