"""Reads what a rank has written, piece by piece, from the files in the job's folder."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from django.db.models import QuerySet

from jobs.jobfolder import job_folder
from jobs.models import Generation, Job, Rank
from webapp.lib.errors import NotFound

__all__ = ["MAX_LOG_BYTES", "LogPiece", "first_written", "read_log"]

MAX_LOG_BYTES = 64 * 1024

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True)
class LogPiece:
    #: Rank id; None while the job has no ranks.
    rank: str | None
    stream: str
    text: str
    #: Byte offset to ask for next.
    next: int


def read_log(job: Job, rank: str, stream: Stream, after: int | None) -> LogPiece:
    """At most `MAX_LOG_BYTES` from byte `after` on; without `after`, the end of the log.

    `rank` is a rank id, a number in the newest generation that had it, or empty for rank 0 or whoever there is.
    """
    row = _find_rank(job, rank)
    if row is None:
        return LogPiece(None, stream, "", 0)
    data, start = _read(_file(job, row, stream), job_folder(job).path, after)
    text, used = _decoded(data)
    return LogPiece(row.wid, stream, text, start + used)


def first_written(job: Job) -> dict[str, str] | None:
    """Which log is worth opening first: of rank 0, else of any rank of this incarnation, a stream that has content."""
    first = _find_rank(job, "")
    if first is None:
        return None
    others = Rank.objects.filter(job=job, incarnation=first.incarnation).exclude(pk=first.pk).order_by("id")
    for row in (first, *others):
        for stream in get_args(Stream):
            file = _file(job, row, stream)
            if file.is_file() and file.stat().st_size:
                return {"rank": row.wid, "stream": stream}
    return {"rank": first.wid, "stream": "stdout"}


def _file(job: Job, row: Rank, stream: Stream) -> Path:
    return job_folder(job).incarnation(row.incarnation) / "log" / f"{row.wid}.{row.host}" / stream


def _find_rank(job: Job, rank: str) -> Rank | None:
    newest = Rank.objects.filter(job=job).order_by("-incarnation", "-generation", "-id")
    if not rank:
        return _numbered(newest, job, 0) or newest.first()
    if rank.isascii() and rank.isdigit() and len(rank) < 10:
        row = _numbered(newest, job, int(rank))
    else:
        row = None if "\0" in rank else newest.filter(wid=rank).first()
    if row is None:
        raise NotFound(f"The job has no rank {rank[:100]!a}: look it up in its list of ranks.")
    return row


def _numbered(newest: QuerySet[Rank], job: Job, number: int) -> Rank | None:
    """The rank that has this number now, or the last that had it: one that has ended has none any more."""
    if row := newest.filter(rank=number).first():
        return row
    for generation in Generation.objects.filter(job=job).order_by("-incarnation", "-number"):
        for member in generation.members:
            if member["rank"] == number:
                return newest.filter(incarnation=generation.incarnation, wid=member["wid"]).first()
    return None


def _read(file: Path, inside: Path, after: int | None) -> tuple[bytes, int]:
    """(bytes, their offset). The script owns its folder: a link in it must not lead us elsewhere."""
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(inside)):
        return b"", after or 0
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b"", after or 0
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b"", after or 0
        start = max(status.st_size - MAX_LOG_BYTES, 0) if after is None else min(after, status.st_size)
        stream.seek(start)
        return stream.read(MAX_LOG_BYTES), start


def _decoded(data: bytes) -> tuple[str, int]:
    """The text, and how many bytes it took: a character cut in two at the end waits for its rest."""
    for cut in range(min(4, len(data))):
        last = data[len(data) - 1 - cut]
        if last < 0x80:
            break
        if last >= 0xC0:
            wanted = 2 if last < 0xE0 else 3 if last < 0xF0 else 4
            if wanted > cut + 1 and len(data) > cut + 1:
                data = data[: len(data) - 1 - cut]
            break
    return data.decode("utf-8", "replace"), len(data)
