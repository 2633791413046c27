"""The request for a flame graph or a trace of a rank, which its shim then hands to it."""

from django.db import transaction
from django.utils import timezone
from tidepool.protocol import RecordingKind

from core.errors import Conflict, field_error
from jobs.control.lifecycle import hosts_of, open_claims, raise_revisions
from jobs.control.transition import change, lock_job
from jobs.files.recordings import Recording, is_under_way, recording_of
from jobs.models import Job
from jobs.queries.rank_numbers import rank_numbers
from jobs.states import TERMINAL

__all__ = ["LIMITS", "NAMES", "request_recording"]

#: Kind -> the words for its amount, and the smallest and largest one.
LIMITS: dict[RecordingKind, tuple[str, int, int]] = {"flame": ("seconds", 5, 60), "trace": ("steps", 1, 20)}
#: Kind -> its name in a sentence.
NAMES: dict[RecordingKind, str] = {"flame": "flame graph", "trace": "trace"}


@transaction.atomic
def request_recording(job_id: int, actor: str, kind: RecordingKind, rank: int, amount: int) -> Job:
    """Have a rank of the job record what it does. `jobs.files.recordings` reads the answer.

    amount: seconds of a flame graph, steps of a trace. Whoever asks for the same while it is recorded shares the
    answer. Raises UserError for another amount or rank, and Conflict for a job without ranks or one that records.
    """
    _check_amount(kind, amount)
    job = lock_job(job_id)
    if job.state in TERMINAL:
        raise Conflict(f"The training is over: it has no rank that could record a {NAMES[kind]}.")
    claims = open_claims(job)
    if not claims:
        raise Conflict(f"The training holds no GPU: it has no rank that could record a {NAMES[kind]}.")
    stored = [recording for each in LIMITS if (recording := recording_of(job, each)) is not None]
    for recording in stored:
        if is_under_way(job, recording):
            if (recording.kind, recording.rank, recording.amount) == (kind, rank, amount):
                return job
            raise Conflict(
                f"{recording.by} records a {NAMES[recording.kind]} of rank {recording.rank}, and a training records one"
                " at a time: wait until it is there, and ask again."
            )
    member_id, host = _member(job, rank)
    number = 1 + max((recording.number for recording in stored), default=0)
    at = timezone.now().isoformat()
    new = Recording(number, kind, job.run.attempt, member_id, host, rank, amount, at, actor)
    change(job, recordings={**job.run.recordings, kind: new.stored()})
    raise_revisions(hosts_of(claims))
    return job


def _check_amount(kind: RecordingKind, amount: int) -> None:
    name, least, most = LIMITS[kind]
    if not least <= amount <= most:
        raise field_error(name, f"A {NAMES[kind]} has {least} to {most} {name}, not {amount}.")


def _member(job: Job, rank: int) -> tuple[str, str]:
    """Return the member id and the host of a rank. Before the first generation, ranks are numbered as they began."""
    living = list(job.ranks.filter(attempt=job.run.attempt, exit={}).order_by("id"))
    numbers = rank_numbers(job, job.run.attempt) or {row.member_id: place for place, row in enumerate(living)}
    for row in living:
        if numbers.get(row.member_id) == rank:
            return row.member_id, row.host
    if not living:
        raise Conflict("No rank of the training runs yet: wait until it has started.")
    raise field_error("rank", f"The training has no rank {rank}: it has {len(living)}, numbered from 0.")
