r"""Log of a training as WMLA's notebooks read it, piece by piece.

Notebooks put a comma for each colon, and read columns 4, 6, 8, 10 and 12 of lines such as

    [2026-01-01 12:00:00] Train,\tTimestamp: 1767268800000,\tGlobal steps: 7,\tIteration: 7,\tLoss: 0.69315,\t...

A line of another kind before the first of these spoils the whole table. So what is sent is the log that the driver of
a FabricModel wrote and nothing else; for any other script, the same lines made of its steps.
"""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import IO, Any

from jobs.files.logs import STREAMS, find_log
from jobs.files.result import driver_logs, log_file
from jobs.models import Job, Rank

__all__ = ["LOG_TYPES", "as_json_string", "rank_log", "train_line", "train_log"]

#: The parameter logType -> the streams of rank 0 that it asks for.
LOG_TYPES = {"outlog": STREAMS[:1], "errlog": STREAMS[1:], "outerrlog": STREAMS}
_CHUNK = 256 * 1024
_METRICS = "metrics.jsonl"


def train_log(job: Job) -> Iterator[bytes]:
    """Yield the log; nothing until the first step."""
    lives = range(job.run.attempt, 0, -1)
    for attempt in lives:
        for path in driver_logs(job, attempt):
            descriptor = log_file(job, attempt, path)
            if descriptor is not None and os.fstat(descriptor).st_size:
                return _read(descriptor)
            if descriptor is not None:
                os.close(descriptor)
    return _lines_of_steps(job)


def rank_log(job: Job, log_type: str) -> Iterator[bytes]:
    """Yield what rank 0 printed; nothing before there is one."""
    if not Rank.objects.filter(job=job).exists():
        return
    for stream in LOG_TYPES[log_type]:
        with find_log(job, attempt=None, rank="", stream=stream).opened() as descriptor:
            if descriptor is not None:
                yield from _read(os.dup(descriptor))


def as_json_string(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text as one JSON string, made while it is read."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    yield b'"'
    for chunk in chunks:
        yield json.dumps(decoder.decode(chunk))[1:-1].encode()
    yield json.dumps(decoder.decode(b"", final=True))[1:-1].encode() + b'"'


def train_line(record: dict[str, Any]) -> str:
    """Return the line for a step in `metrics.jsonl`. Accuracies are percent there, and parts of 1 in WMLA's logs."""
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
    made: list[str] = []
    for record in _records(job, attempt):
        if end and record["step"] >= end:
            break
        made.append(train_line(record))
        if len(made) == 1000:
            yield "".join(made).encode()
            made = []
    yield "".join(made).encode()


def _first_step(job: Job, attempt: int) -> int:
    """Return the attempt's first step; 0 if it made none."""
    return next((int(record["step"]) for record in _records(job, attempt)), 0)


def _records(job: Job, attempt: int) -> Iterator[dict[str, Any]]:
    """Yield the records of whole lines, as the last one may still be written. Damaged lines are left out."""
    descriptor = log_file(job, attempt, _METRICS)
    if descriptor is None:
        return
    with os.fdopen(descriptor, "rb") as stream:
        for line in _whole_lines(stream):
            record = _parsed(line)
            if record is not None:
                yield record


def _whole_lines(stream: IO[bytes]) -> Iterator[bytes]:
    while (line := stream.readline(_CHUNK)).endswith(b"\n"):
        yield line


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
        train_line(record)
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError, OSError):
        return None
    return record  # type: ignore[no-any-return]


def _read(descriptor: int) -> Iterator[bytes]:
    with os.fdopen(descriptor, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk
