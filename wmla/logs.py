"""Logs as WMLA's clients ask for them: of the driver (those of rank 0), of executors, and of the launcher."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.http import StreamingHttpResponse
from rest_framework import serializers
from rest_framework.request import Request

from core.downloads import file_response
from core.errors import NotFound
from core.rest import validated
from jobs.files.logs import STREAMS, Log, Stream, find_log, log_content, log_of
from jobs.models import Job, JobEvent
from wmla.applications import executors_of
from wmla.lookup import executor_of

__all__ = ["LogQuery", "driver_log", "executor_log", "launcher_log", "log_answer", "text_stream"]

_TEXT = "text/plain; charset=utf-8"
_NUMBER_LENGTH = 9


class LogQuery(serializers.Serializer[Any]):
    lastlines = serializers.IntegerField(
        required=False, min_value=1, max_value=2**31 - 1, help_text="Only the last ones; absent: all."
    )


def driver_log(job: Job, stream: str) -> Log:
    return find_log(job, attempt=None, rank="", stream=_stream(stream))


def executor_log(job: Job, executor: str, stream: str) -> Log:
    """Find a rank's log. executor: its id, or a number from 1, which is rank 0."""
    wanted = _stream(stream)
    if executor.isascii() and executor.isdecimal() and len(executor) <= _NUMBER_LENGTH:
        if executor.strip("0") == "":
            raise NotFound("Executors are numbered from 1: the driver has logs of its own.")
        return _numbered_log(job, int(executor) - 1, wanted)
    return log_of(job, executor_of(job, executor), wanted)


def _numbered_log(job: Job, number: int, stream: Stream) -> Log:
    try:
        return find_log(job, attempt=None, rank=str(number), stream=stream)
    except NotFound:
        # None ever had a number, where all ended before they trained: in the order of the list.
        executors = executors_of([job]).get(job.pk, [])
        if number >= len(executors):
            raise
        return log_of(job, executors[number].rank, stream)


def launcher_log(job: Job) -> Iterator[bytes]:
    """Return a line for each of the job's events, which is what WMLA's launcher logs too."""
    for event in JobEvent.objects.filter(job=job).order_by("seq").iterator():
        sentence = " ".join(event.text.split())
        yield f"[{event.at:%Y-%m-%d %H:%M:%S}] {event.new} {sentence}\n".encode()


def log_answer(request: Request, log: Log) -> StreamingHttpResponse:
    """Answer with the log's text, sent while it is read, or with its last lines if the address asks for that."""
    asked = validated(LogQuery, request.query_params)
    with log.opened() as descriptor:
        if descriptor is None:
            raise NotFound(f"There is no {log.stream} of {log.member_id} yet: its process has written nothing.")
    content = log_content(log, asked.get("lastlines"))
    return text_stream(request, content, log.stream)


def text_stream(request: Request, chunks: Iterator[bytes], name: str) -> StreamingHttpResponse:
    return file_response(request, chunks, name, _TEXT)


def _stream(name: str) -> Stream:
    for stream in STREAMS:
        if stream == name:
            return stream
    raise NotFound(f"There is no log {name[:40]!a}: ask for stdout or stderr.")
