"""Values of a metric at every step, from the `metrics.jsonl` of a job's attempts, where rows have only some of them."""

import os
from collections.abc import Collection, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tidepool.journal import LONGEST_LINE_BYTES
from tidepool.recorded_metrics import LAST_STEP
from tidepool.safe_open import open_regular

from core.numbers import finite
from core.time import moment_at
from jobs.files.job_folder import job_folder
from jobs.models import Job

__all__ = ["Exact", "exact_values", "has_exact_values", "newest_values"]

_FILE = "metrics.jsonl"


class Exact(NamedTuple):
    step: int
    #: Value; None: it is not a finite number.
    value: float | None
    at: datetime
    epoch: int


def has_exact_values(job: Job, name: str) -> bool:
    """Return whether the rows of the metric lack steps that the files have."""
    return bool(job.run.series.get(name, (0, 0))[0]) and any(path.exists() for path in _files(job))


def exact_values(job: Job, name: str) -> Iterator[Exact]:
    """Yield the metric's values in order of step. Steps that a later attempt has repeated are that attempt's."""
    files = [(path, first) for path in _files(job) if (first := next(_records(path), None)) is not None]
    for place, (path, _) in enumerate(files):
        end = min((first["step"] for _, first in files[place + 1 :]), default=None)
        for record in _records(path):
            if end is not None and record["step"] >= end:
                break
            if name in record:
                yield _exact(record, name)


def newest_values(job: Job, name: str, steps: Collection[int]) -> dict[int, float | None]:
    """Return the metric's newest value up to each of these steps. Steps before the first value are missing."""
    found: dict[int, float | None] = {}
    waiting = sorted(steps, reverse=True)
    newest: Exact | None = None
    for exact in exact_values(job, name):
        while waiting and waiting[-1] < exact.step:
            step = waiting.pop()
            if newest is not None:
                found[step] = newest.value
        newest = exact
    return found | ({} if newest is None else dict.fromkeys(waiting, newest.value))


def _files(job: Job) -> list[Path]:
    """Return the files of the attempts, the oldest first."""
    folder = job_folder(job)
    return [folder.attempt(number) / _FILE for number in range(1, job.run.attempt + 1)]


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of steps, up to a line that is too long to be ours; a line that a killed rank left is none."""
    descriptor = open_regular(path)
    if descriptor is None:
        return
    with os.fdopen(descriptor, "rb") as stream:
        while 0 < len(line := stream.readline(LONGEST_LINE_BYTES)) < LONGEST_LINE_BYTES:
            try:
                record = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError):
                continue
            if isinstance(record, dict) and isinstance(record.get("step"), int) and abs(record["step"]) <= LAST_STEP:
                yield record


def _exact(record: dict[str, Any], name: str) -> Exact:
    epoch = record.get("epoch")
    return Exact(
        record["step"],
        finite(record[name]),
        moment_at(finite(record.get("at")) or 0.0),
        epoch if isinstance(epoch, int) else 0,
    )
