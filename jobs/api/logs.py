"""`/api/v1/jobs/{id}/logs/`: raw text, styled lines, search, and whole files."""

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
from core.rest import ListPages, validated
from jobs.api.views import JobView
from jobs.files.folder import safe_name
from jobs.files.lines import Lines, lines_after, lines_before
from jobs.files.logs import STREAMS, Log, LogPiece, find_log, log_content, log_list, read_log
from jobs.files.result import log_chunks, result_name
from jobs.files.search import MAX_NEEDLE, Match, search_logs
from jobs.files.tail import log_topic
from jobs.models import Job

__all__ = ["JobLogDownload", "JobLogFiles", "JobLogLines", "JobLogSearch", "JobLogs"]

_MAX_OFFSET = 2**62


class RankQuery(serializers.Serializer[Any]):
    attempt = serializers.IntegerField(
        default=None, min_value=0, max_value=2**31 - 1, help_text="Absent: the newest that has such a rank."
    )
    rank = serializers.CharField(
        default="", allow_blank=True, max_length=128, help_text="Rank id or number; absent: rank 0."
    )


class LogQuery(serializers.Serializer[Any]):
    rank = serializers.CharField(
        default="", allow_blank=True, max_length=128, help_text="Rank id or number; absent: rank 0."
    )
    stream = serializers.ChoiceField(STREAMS, default="stdout")
    after = serializers.IntegerField(
        default=None, min_value=0, max_value=_MAX_OFFSET, help_text="Byte offset; absent: the end of the log."
    )


class LogOutput(serializers.Serializer[LogPiece]):
    rank = serializers.CharField(allow_null=True)
    stream = serializers.CharField()
    text = serializers.CharField()
    next = serializers.IntegerField(help_text="Offset to ask for next.")


class LinesQuery(RankQuery):
    stream = serializers.ChoiceField(STREAMS, default="stdout")
    after = serializers.IntegerField(
        default=None, min_value=0, max_value=_MAX_OFFSET, help_text="Lines from this offset, the beginning of one."
    )
    before = serializers.IntegerField(
        default=None, min_value=0, max_value=_MAX_OFFSET, help_text="Lines up to this offset. Neither: the end."
    )


class LogSpanOutput(serializers.Serializer[Any]):
    text = serializers.CharField()
    style = serializers.CharField(help_text="Words such as `bold red`.")  # type: ignore[assignment]


class LineOutput(serializers.Serializer[Any]):
    at = serializers.IntegerField(help_text="Byte offset of its beginning.")
    spans = LogSpanOutput(many=True)
    cut_bytes = serializers.IntegerField(help_text="Its length where a part of it is shown, else 0.")


class LinesOutput(serializers.Serializer[Any]):
    attempt = serializers.IntegerField()
    rank = serializers.CharField()
    stream = serializers.CharField()
    start = serializers.IntegerField()
    next = serializers.IntegerField(help_text="Where the line after the last one begins.")
    size = serializers.IntegerField()
    lines = LineOutput(many=True)
    unfinished = LineOutput(allow_null=True, help_text="The last line of the log while it has not ended.")


class LogFileOutput(serializers.Serializer[Any]):
    attempt = serializers.IntegerField()
    rank = serializers.CharField(help_text="Its id.")
    number = serializers.IntegerField(allow_null=True, help_text="Among the ranks of the training now.")
    generation = serializers.IntegerField(help_text="The newest that it was a member of.")
    host = serializers.CharField()
    stream = serializers.CharField()
    has_ended = serializers.BooleanField()
    size_bytes = serializers.IntegerField()
    topic = serializers.CharField(help_text="To follow it by websocket, after `size` of its lines.")


class SearchQuery(RankQuery):
    rank = serializers.CharField(
        default="", allow_blank=True, max_length=128, help_text="Rank id or number; absent: all ranks."
    )
    stream = serializers.ChoiceField(["", *STREAMS], default="", help_text="Absent: both.")
    q = serializers.CharField(max_length=MAX_NEEDLE, trim_whitespace=False, help_text="a to z match A to Z.")
    number = serializers.IntegerField(default=1, min_value=1, max_value=2**31 - 1, help_text="Which match to find.")


class MatchOutput(serializers.Serializer[Any]):
    attempt = serializers.IntegerField()
    rank = serializers.CharField()
    stream = serializers.CharField()
    at = serializers.IntegerField(help_text="Byte offset of the beginning of its line.")
    nth = serializers.IntegerField(help_text="The how many-th match in that line, from 0.")


class LogSearchOutput(serializers.Serializer[Any]):
    count = serializers.IntegerField()
    is_complete = serializers.BooleanField(help_text="False: the search took too long and stopped.")
    match = MatchOutput(allow_null=True)


class DownloadQuery(RankQuery):
    rank = serializers.CharField(
        default="", allow_blank=True, max_length=128, help_text="Rank id or number; absent: all logs, as a zip file."
    )
    stream = serializers.ChoiceField(STREAMS, default="stdout")


class JobLogs(JobView):
    @extend_schema(parameters=[LogQuery], responses=LogOutput)
    def get(self, request: Request, job: int) -> Response:
        """Return raw text, in pieces."""
        asked = validated(LogQuery, request.query_params)
        return Response(LogOutput(read_log(self.job(), **asked)).data)


class JobLogFiles(JobView):
    serializer_class = LogFileOutput
    pagination_class = ListPages

    @extend_schema(responses=LogFileOutput(many=True))
    def get(self, request: Request, job: int) -> Response:
        """List the logs of every attempt."""
        row = self.job()
        return self.listed([_file_as_json(row, log) for log in log_list(row)])


class JobLogLines(JobView):
    @extend_schema(parameters=[LinesQuery], responses=LinesOutput)
    def get(self, request: Request, job: int) -> Response:
        """Return lines without escape sequences; their colours are named beside the text."""
        asked = validated(LinesQuery, request.query_params)
        row = self.job()
        log = find_log(row, attempt=asked["attempt"], rank=asked["rank"], stream=asked["stream"])
        with log.opened() as descriptor:
            lines = _lines(descriptor, asked["after"], asked["before"])
        return Response({"attempt": log.attempt, "rank": log.member_id, "stream": log.stream, **asdict(lines)})


class JobLogSearch(JobView):
    @extend_schema(parameters=[SearchQuery], responses=LogSearchOutput)
    def get(self, request: Request, job: int) -> Response:
        """Count and locate a text in whole logs, however long they are."""
        asked = validated(SearchQuery, request.query_params)
        logs = log_list(self.job(), attempt=asked["attempt"], rank=asked["rank"], stream=asked["stream"])
        found = search_logs(logs, asked["q"], asked["number"])
        match = _match_as_json(found.match) if found.match else None
        return Response({"count": found.count, "is_complete": found.is_complete, "match": match})


class JobLogDownload(JobView):
    @extend_schema(parameters=[DownloadQuery], responses={(200, "text/plain"): OpenApiTypes.BINARY})
    def get(self, request: Request, job: int) -> StreamingHttpResponse:
        """Download one log; without `rank`, all logs of every attempt as a zip file."""
        asked = validated(DownloadQuery, request.query_params)
        row = self.job()
        if not asked["rank"]:
            return file_response(request, log_chunks(row), result_name(row).replace(".zip", "-logs.zip"))
        log = find_log(row, attempt=asked["attempt"], rank=asked["rank"], stream=asked["stream"])
        return file_response(request, log_content(log), _file_name(row, log), "text/plain; charset=utf-8")


def _lines(descriptor: int | None, after: int | None, before: int | None) -> Lines:
    if descriptor is None:
        return Lines(0, 0, 0)
    return lines_before(descriptor, before) if after is None else lines_after(descriptor, after)


def _file_as_json(job: Job, log: Log) -> dict[str, Any]:
    return {
        "attempt": log.attempt,
        "rank": log.member_id,
        "number": log.rank,
        "generation": log.generation,
        "host": log.host,
        "stream": log.stream,
        "has_ended": log.has_ended,
        "size_bytes": log.size_bytes,
        "topic": log_topic(job.pk, log),
    }


def _match_as_json(match: Match) -> dict[str, Any]:
    log = match.log
    return {
        "attempt": log.attempt,
        "rank": log.member_id,
        "stream": log.stream,
        "at": match.at,
        "nth": match.nth,
    }


def _file_name(job: Job, log: Log) -> str:
    name = f"job-{job.pk}-{log.attempt}-{log.member_id}-{log.stream}.log"
    return "".join(letter if letter.isascii() else "_" for letter in safe_name(name)).replace('"', "_")
