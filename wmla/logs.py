r"""Logs in the formats of WMLA's clients: of a training, its driver (rank 0), its executors and its launcher.

Notebooks replace each colon of a training's log by a comma, and read columns 4, 6, 8, 10 and 12 of lines such as

    [2026-01-01 12:00:00] Train,\tTimestamp: 1767268800000,\tGlobal steps: 7,\tIteration: 7,\tLoss: 0.69315,\t...

A line of another kind before the first of these breaks the whole table. The response is therefore only the driver's log
of a FabricModel; for other elastic scripts, the same lines are generated from the steps. Other scripts have no driver:
their log is their standard output.
"""

import codecs
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Any

from django.http import StreamingHttpResponse
from rest_framework import serializers
from rest_framework.request import Request

from core.downloads import file_response
from core.errors import NotFound
from core.rest import validated
from jobs.files.logs import STREAMS, Log, Stream, find_log, first_rank_logs, log_content, log_of
from jobs.files.result_files import driver_logs, log_file
from jobs.models import Job, JobEvent
from wmla.applications import executors_of
from wmla.identifiers import executor_of
from wmla.service_info import framework_of

__all__ = [
    "LOG_TYPES",
    "LogQuery",
    "as_json_string",
    "driver_log",
    "executor_log",
    "launcher_log",
    "log_answer",
    "rank_log",
    "text_stream",
    "train_line",
    "train_log",
]

#: Parameter logType -> the streams of rank 0.
LOG_TYPES = {"outlog": STREAMS[:1], "errlog": STREAMS[1:], "outerrlog": STREAMS}
_CHUNK = 256 * 1024
_METRICS = "metrics.jsonl"
_NUMBER_LENGTH = 9


class LogQuery(serializers.Serializer[Any]):
    lastlines = serializers.IntegerField(
        required=False, min_value=1, max_value=2**31 - 1, help_text="Number of last lines to return; default: all."
    )


def driver_log(job: Job, stream: str) -> list[Log]:
    """Find the logs of every process that was rank 0; resizes and restarts replace it."""
    wanted = _stream(stream)
    return first_rank_logs(job, wanted) or [find_log(job, attempt=None, rank="", stream=wanted)]


def executor_log(job: Job, executor: str, stream: str) -> list[Log]:
    """Find a rank's log. executor: its id, or a number from 1, which is rank 0."""
    return [_executor_log(job, executor, _stream(stream))]


def _executor_log(job: Job, executor: str, wanted: Stream) -> Log:
    if executor.isascii() and executor.isdecimal() and len(executor) <= _NUMBER_LENGTH:
        if executor.strip("0") == "":
            raise NotFound("Executors are numbered from 1; for the driver, use its own logs.")
        return _numbered_log(job, int(executor) - 1, wanted)
    return log_of(job, executor_of(job, executor), wanted)


def _numbered_log(job: Job, number: int, stream: Stream) -> Log:
    try:
        return find_log(job, attempt=None, rank=str(number), stream=stream)
    except NotFound:
        # Ranks that ended before training have no number, so count them in the order of the list.
        executors = executors_of([job]).get(job.pk, [])
        if number >= len(executors):
            raise
        return log_of(job, executors[number].rank, stream)


def launcher_log(job: Job) -> Iterator[bytes]:
    """Yield a line for each of the job's events, like WMLA's launcher log."""
    for event in JobEvent.objects.filter(job=job).order_by("seq").iterator():
        sentence = " ".join(event.text.split())
        yield f"[{event.at:%Y-%m-%d %H:%M:%S}] {event.new} {sentence}\n".encode()


def log_answer(request: Request, logs: Sequence[Log]) -> StreamingHttpResponse:
    """Return a response that streams the logs, or their last lines if the query requests that."""
    asked = validated(LogQuery, request.query_params)
    written = [log for log in logs if _exists(log)]
    if not written:
        raise NotFound(f"{logs[-1].member_id} has not written to {logs[-1].stream} yet.")
    return text_stream(request, _joined(written, asked.get("lastlines")), logs[-1].stream)


def _exists(log: Log) -> bool:
    with log.opened() as descriptor:
        return descriptor is not None


def _joined(logs: Sequence[Log], last_lines: int | None = None) -> Iterator[bytes]:
    """Yield the logs one after the other, or the last lines of them all."""
    parts: list[tuple[Log, int | None]] = [(log, None) for log in logs]
    if last_lines is not None:
        parts, wanted = [], last_lines
        for log in reversed(logs):
            if wanted <= 0:
                break
            parts.insert(0, (log, wanted))
            wanted -= sum(chunk.count(b"\n") for chunk in log_content(log, wanted))
    end = b"\n"
    for log, lines in parts:
        if end != b"\n":  # the process was killed while writing a line
            yield b"\n"
        for chunk in log_content(log, lines):
            yield chunk
            end = chunk[-1:]


def text_stream(request: Request, chunks: Iterator[bytes], name: str) -> StreamingHttpResponse:
    return file_response(request, chunks, name, "text/plain; charset=utf-8")


def _stream(name: str) -> Stream:
    for stream in STREAMS:
        if stream == name:
            return stream
    raise NotFound(f"Log {name[:40]!a} is not known: request stdout or stderr.")


def train_log(job: Job) -> Iterator[bytes]:
    """Return the driver's log; without one, the steps of an elastic training or the standard output of another
    script."""
    lives = range(job.run.attempt, 0, -1)
    for attempt in lives:
        for path in driver_logs(job, attempt):
            descriptor = log_file(job, attempt, path)
            if descriptor is not None and os.fstat(descriptor).st_size:
                return _read(descriptor)
            if descriptor is not None:
                os.close(descriptor)
    return _lines_of_steps(job) if framework_of(job).is_elastic else _joined(first_rank_logs(job, STREAMS[0]))


def rank_log(job: Job, log_type: str) -> Iterator[bytes]:
    """Yield the output of rank 0, and the steps of an elastic training, which WMLA's driver also prints."""
    for stream in LOG_TYPES[log_type]:
        yield from _joined(first_rank_logs(job, stream))
        if stream == STREAMS[0] and framework_of(job).is_elastic:
            yield from train_log(job)


def as_json_string(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text as one JSON string, encoded while it is read."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    yield b'"'
    for chunk in chunks:
        yield json.dumps(decoder.decode(chunk))[1:-1].encode()
    yield json.dumps(decoder.decode(b"", final=True))[1:-1].encode() + b'"'


def train_line(record: dict[str, Any]) -> str:
    """Return the line for a step in `metrics.jsonl`, whose accuracy is in percent; WMLA's logs have fractions of 1."""
    at = datetime.fromtimestamp(float(record["at"]), UTC)
    step = int(record["step"])
    loss, accuracy = record.get("loss"), record.get("accuracy")
    fields = (
        f"Timestamp: {int(at.timestamp() * 1000)}",
        f"Global steps: {step}",
        f"Iteration: {step}",
        f"Loss: {_number(loss)}",
        f"Accuracy: {_number(0.0 if accuracy is None else float(accuracy) / 100)}",
    )
    return ",\t".join([f"[{at:%Y-%m-%d %H:%M:%S}] Train", *fields]) + "\n"


def _number(value: float | None) -> str:
    return "nan" if value is None else f"{float(value):.5f}"


def _lines_of_steps(job: Job) -> Iterator[bytes]:
    """Yield the steps of every attempt, without those that the next attempt repeated from a checkpoint."""
    for attempt in range(1, job.run.attempt + 1):
        later = [step for each in range(attempt + 1, job.run.attempt + 1) if (step := _first_step(job, each))]
        yield from _lines_before(job, attempt, min(later, default=0))


def _lines_before(job: Job, attempt: int, end: int) -> Iterator[bytes]:
    """Yield the lines before step `end`; 0 for all."""
    records = takewhile(lambda record: not end or record["step"] < end, _records(job, attempt))
    lines = map(train_line, records)
    while some := "".join(islice(lines, 1000)):
        yield some.encode()


def _first_step(job: Job, attempt: int) -> int:
    """Return the attempt's first step; 0 if it has none."""
    return next((int(record["step"]) for record in _records(job, attempt)), 0)


def _records(job: Job, attempt: int) -> Iterator[dict[str, Any]]:
    """Yield the records of complete lines, as the last one may be incomplete. Damaged lines are skipped."""
    descriptor = log_file(job, attempt, _METRICS)
    if descriptor is None:
        return
    with os.fdopen(descriptor, "rb") as stream:
        while (line := stream.readline(_CHUNK)).endswith(b"\n"):
            record = _parsed(line)
            if record is not None:
                yield record


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
        train_line(record)
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError, OSError):
        return None
    return record  # type: ignore[no-any-return]


def _read(descriptor: int) -> Iterator[bytes]:
    with os.fdopen(descriptor, "rb") as stream:
        yield from iter(lambda: stream.read(_CHUNK), b"")
