"""Recordings of ranks: the newest request of each kind, and the answer in the rank's log folder."""

import json
import os
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from tidepool.protocol import FlameAnswer, ProtocolError, RecordingKind, RecordingRequest, TraceAnswer, from_json
from tidepool.recordings.native import MOST_LATE_SECONDS
from tidepool.recordings.requests import ANSWER_FILES, TRACE_FILE
from tidepool.safe_open import open_below

from core.text import readable_text
from jobs.files.job_folder import job_folder
from jobs.models import Job
from jobs.states import TERMINAL

__all__ = ["Recording", "answer_of", "has_ended", "is_under_way", "newest_request", "open_trace", "recording_of"]

_MOST_BYTES = 32 * 2**20
#: Kind -> time until an answer must be there, after the seconds of a flame graph. A trace waits for a step first.
_PATIENCE = {"flame": timedelta(seconds=15), "trace": timedelta(seconds=180)}


@dataclass(frozen=True)
class Recording:
    """A request. It is stored in `JobRun.recordings` under its kind."""

    number: int
    kind: RecordingKind
    attempt: int
    member_id: str
    host: str
    #: Number of the rank when it was requested.
    rank: int
    #: Seconds of a flame graph, steps of a trace.
    amount: int
    #: Time of the request in ISO form, and its author.
    at: str
    by: str
    #: Whether a flame graph has functions of C.
    native: bool = False

    @property
    def requested_at(self) -> datetime:
        return datetime.fromisoformat(self.at)

    @property
    def is_late(self) -> bool:
        """Whether the answer should be there by now."""
        seconds = self.amount if self.kind == "flame" else 0
        seconds += MOST_LATE_SECONDS if self.native else 0
        return timezone.now() - self.requested_at > timedelta(seconds=seconds) + _PATIENCE[self.kind]

    def stored(self) -> dict[str, Any]:
        return asdict(self)


def recording_of(job: Job, kind: RecordingKind) -> Recording | None:
    stored = job.run.recordings.get(kind)
    return None if stored is None else Recording(**stored)


def newest_request(job: Job) -> RecordingRequest | None:
    """Return the newest request to the present attempt, whatever its kind."""
    stored = [Recording(**values) for values in job.run.recordings.values()]
    newest = max(stored, key=lambda recording: recording.number, default=None)
    if newest is None or newest.attempt != job.run.attempt:
        return None
    return RecordingRequest(newest.number, newest.kind, newest.member_id, newest.amount, newest.native)


def answer_of(job: Job, recording: Recording) -> FlameAnswer | TraceAnswer | None:
    """Return the rank's answer; None: there is none yet, or the script has written something else there."""
    descriptor = _opened(job, recording, ANSWER_FILES[recording.kind])
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(_MOST_BYTES + 1)
    kind: type[FlameAnswer | TraceAnswer] = FlameAnswer if recording.kind == "flame" else TraceAnswer
    try:
        answer = from_json(kind, readable_text(json.loads(content)))
    except (ValueError, ProtocolError, RecursionError):
        return None
    return answer if answer.number == recording.number else None


def open_trace(job: Job, recording: Recording) -> int | None:
    """Return a descriptor of the trace, compressed; None: it is not there."""
    return _opened(job, recording, TRACE_FILE)


def is_under_way(job: Job, recording: Recording) -> bool:
    """Return whether the rank may still answer."""
    return not recording.is_late and not has_ended(job, recording) and answer_of(job, recording) is None


def has_ended(job: Job, recording: Recording) -> bool:
    """Return whether the rank has ended."""
    lives = job.ranks.filter(attempt=recording.attempt, member_id=recording.member_id, exit={})
    return recording.attempt != job.run.attempt or job.state in TERMINAL or not lives.exists()


def _opened(job: Job, recording: Recording, name: str) -> int | None:
    folder = job_folder(job).attempt(recording.attempt)
    return open_below(folder, ("log", f"{recording.member_id}.{recording.host}", name))
