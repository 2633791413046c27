"""Logs of a job: the list of logs, and their content in pieces, from files in the job's folder."""

import codecs
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from django.db.models import QuerySet
from tidepool.safe_open import open_below

from core.errors import NotFound
from jobs.files.job_folder import job_folder
from jobs.models import Generation, Job, Rank
from jobs.states import GenerationState
from models_registry.models import RegisteredModelVersion

__all__ = [
    "MAX_LOG_BYTES",
    "STREAMS",
    "Log",
    "LogPiece",
    "Stream",
    "find_log",
    "first_rank_logs",
    "first_written",
    "log_content",
    "log_list",
    "log_of",
    "read_log",
]

MAX_LOG_BYTES = 64 * 1024
_CHUNK = 256 * 1024

#: States of generations that have trained.
_BEGUN = (GenerationState.ACTIVE, GenerationState.SUPERSEDED, GenerationState.ENDED)

#: Prefix of a host's name that marks the log of a requirements installation, among the logs of ranks.
_ENVIRONMENT = "environment@"

Stream = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, ...] = get_args(Stream)


@dataclass(frozen=True)
class Log:
    """One stream of one rank. The log remains after the rank's end."""

    attempt: int
    member_id: str
    host: str
    stream: Stream
    #: Current number of the rank; None: not in a generation.
    rank: int | None
    #: Newest generation that the rank belonged to.
    generation: int
    has_ended: bool
    path: Path
    #: Folder of the job; links that lead out of it are not followed.
    inside: Path

    @contextmanager
    def opened(self) -> Iterator[int | None]:
        """Yield the log's descriptor; None if there is no such file, or it is not a file of this job."""
        descriptor = open_below(self.inside, self.path.relative_to(self.inside).parts)
        try:
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)

    @property
    def size_bytes(self) -> int:
        with self.opened() as descriptor:
            return os.fstat(descriptor).st_size if descriptor is not None else 0


@dataclass(frozen=True)
class LogPiece:
    #: Rank id; None while the job has no ranks.
    rank: str | None
    stream: str
    text: str
    #: Byte offset of the next piece.
    next: int


def read_log(job: Job, rank: str, stream: Stream, after: int | None) -> LogPiece:
    """Read at most `MAX_LOG_BYTES` from byte `after` on; without `after`, the end of the log.

    `rank` is a rank id, a number in the newest generation that had it, or empty for rank 0 or any other.
    """
    row = _find_rank(job, rank)
    if row is None:
        return LogPiece(None, stream, "", 0)
    with log_of(job, row, stream).opened() as descriptor:
        if descriptor is None:
            return LogPiece(row.member_id, stream, "", after or 0)
        size = os.fstat(descriptor).st_size
        start = max(size - MAX_LOG_BYTES, 0) if after is None else min(after, size)
        text, used = _decoded(os.pread(descriptor, MAX_LOG_BYTES, start))
    return LogPiece(row.member_id, stream, text, start + used)


def log_list(job: Job, *, attempt: int | None = None, rank: str = "", stream: str = "") -> list[Log]:
    """Return the logs of a job by attempt and rank, optionally of one attempt, rank (id or number) or stream."""
    installed = [
        log
        for log in _environment_logs(job)
        if attempt in (None, log.attempt) and rank in ("", log.member_id) and stream in ("", log.stream)
    ]
    if rank.startswith(_ENVIRONMENT):
        return installed
    rows = Rank.objects.filter(job=job).order_by("attempt", "id")
    if attempt is not None:
        rows = rows.filter(attempt=attempt)
    if rank:
        found = _find_rank(job, rank, attempt)
        rows = rows.filter(pk=found.pk) if found else rows.none()
    streams = [name for name in STREAMS if stream in ("", name)]
    return [*installed, *(log_of(job, row, name) for row in rows for name in streams)]


def find_log(job: Job, *, attempt: int | None, rank: str, stream: Stream) -> Log:
    """Return one log: of the rank with this id or number, of rank 0, or of an installation on a host."""
    installed = log_list(job, attempt=attempt, rank=rank, stream=stream) if rank.startswith(_ENVIRONMENT) else []
    if installed:
        return installed[-1]
    row = _find_rank(job, rank, attempt)
    if row is None:
        raise NotFound("The training has no rank yet: wait until it has started.")
    return log_of(job, row, stream)


def _environment_logs(job: Job) -> list[Log]:
    """Return the log of each installation of the job's requirements."""
    folder = job_folder(job)
    found = []
    for attempt in range(1, job.run.attempt + 1):
        for path in sorted((folder.attempt(attempt) / "log").glob(f"{_ENVIRONMENT}*/stdout")):
            name = path.parent.name
            host = name.removeprefix(_ENVIRONMENT)
            found.append(Log(attempt, name, host, "stdout", None, 0, has_ended=False, path=path, inside=folder.path))
    return found


def first_rank_logs(job: Job, stream: Stream) -> list[Log]:
    """Return the logs of all successive ranks 0: together, the job's output from its first step on."""
    led = Generation.objects.filter(job=job, state__in=_BEGUN).order_by("attempt", "number")
    first = [
        (attempt, member["member_id"])
        for attempt, members in led.values_list("attempt", "members")
        for member in members
        if member["rank"] == 0
    ]
    rows = {(row.attempt, row.member_id): row for row in Rank.objects.filter(job=job)}
    found = {key: rows[key] for key in first if key in rows}
    newest = _find_rank(job, "")  # covers an attempt that has not trained yet
    if newest is not None and newest.attempt not in {attempt for attempt, _ in found}:
        found[newest.attempt, newest.member_id] = newest
    return [log_of(job, row, stream) for row in found.values()]


def log_of(job: Job, row: Rank, stream: Stream) -> Log:
    folder = job_folder(job)
    return Log(
        attempt=row.attempt,
        member_id=row.member_id,
        host=row.host,
        stream=stream,
        rank=row.rank,
        generation=row.generation,
        has_ended=bool(row.exit),
        path=folder.attempt(row.attempt) / "log" / f"{row.member_id}.{row.host}" / stream,
        inside=folder.path,
    )


def log_content(log: Log, last_lines: int | None = None) -> Iterator[bytes]:
    """Yield the log's current content, or its last lines, without later additions."""
    with log.opened() as descriptor:
        if descriptor is None:
            return
        size = os.fstat(descriptor).st_size
        position = 0 if last_lines is None else _start_of_last(descriptor, size, last_lines)
        while position < size:
            data = os.pread(descriptor, min(_CHUNK, size - position), position)
            if not data:
                return
            position += len(data)
            yield data


def _start_of_last(descriptor: int, size: int, lines: int) -> int:
    """Return the offset of the last `lines` lines, including an unfinished one."""
    if lines <= 0:
        return size
    # The newline at the very end starts no line.
    end, wanted = size - 1, lines
    while end > 0:
        start = max(0, end - _CHUNK)
        data = os.pread(descriptor, end - start, start)
        found = data.count(b"\n")
        if found >= wanted:
            position = len(data)
            for _ in range(wanted):
                position = data.rfind(b"\n", 0, position)
            return start + position + 1
        end, wanted = start, wanted - found
    return 0


def first_written(job: Job) -> dict[str, str] | None:
    """Return the log to open first: of rank 0 or another rank of its attempt, the first stream with content."""
    first = _find_rank(job, "")
    if first is None:
        installed = _environment_logs(job)
        return {"rank": installed[-1].member_id, "stream": "stdout"} if installed else None
    others = Rank.objects.filter(job=job, attempt=first.attempt).exclude(pk=first.pk).order_by("id")
    for row in (first, *others):
        for stream in STREAMS:
            if log_of(job, row, stream).size_bytes:
                return {"rank": row.member_id, "stream": stream}
    return {"rank": first.member_id, "stream": "stdout"}


def _find_rank(job: Job, rank: str, attempt: int | None = None) -> Rank | None:
    newest = Rank.objects.filter(job=job).order_by("-attempt", "-generation", "-id")
    if attempt is not None:
        newest = newest.filter(attempt=attempt)
    if not rank:
        return _numbered(newest, job, 0) or _unnumbered(newest, job)
    if rank.isascii() and rank.isdigit() and len(rank) < 10:
        row = _numbered(newest, job, int(rank))
    else:
        row = None if "\0" in rank else newest.filter(member_id=rank).first()
    if row is None:
        raise NotFound(f"The training has no rank {rank[:100]!a}: look it up in its list of ranks.")
    return row


def _numbered(newest: QuerySet[Rank], job: Job, number: int) -> Rank | None:
    """Return the rank with this number, or the last rank that had it: an exited rank has no number."""
    if row := newest.filter(rank=number).first():
        return row
    for generation in Generation.objects.filter(job=job).order_by("-attempt", "-number"):
        for member in generation.members:
            if member["rank"] == number:
                return newest.filter(attempt=generation.attempt, member_id=member["member_id"]).first()
    return None


def _unnumbered(newest: QuerySet[Rank], job: Job) -> Rank | None:
    """Return the rank that started first, among ranks without numbers.

    Fixed-size scripts write nothing before their ranks have numbers, and any other rank would be mistaken for rank 0.
    """
    if job.finished_at is None and job.model.engine != RegisteredModelVersion.Engine.ELASTIC:
        return None
    return newest.order_by("-attempt", "id").first()


def _decoded(data: bytes) -> tuple[str, int]:
    """Return the text and its length in bytes; an incomplete character at the end is left for the next piece."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    waiting = len(decoder.getstate()[0])
    if waiting < len(data):
        return text, len(data) - waiting
    return text + decoder.decode(b"", final=True), len(data)
