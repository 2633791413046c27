"""The request for a flame graph or a trace of a rank, which its shim then hands to it."""

from collections.abc import Sequence

from django.db import transaction
from django.utils import timezone
from tidepool.protocol import RecordingKind

from core import live
from core.errors import Conflict, field_error
from jobs.control.lifecycle import hosts_of, open_claims, raise_revisions
from jobs.control.transition import change, lock_job
from jobs.files.recordings import Recording, is_under_way, recording_of
from jobs.models import Job, Rank, SlotClaim
from jobs.queries.rank_numbers import rank_numbers
from jobs.states import TERMINAL
from workers.topics import CLUSTER

__all__ = ["LIMITS", "NAMES", "request_recording"]

#: Kind -> the words for its amount, and the smallest and largest one.
LIMITS: dict[RecordingKind, tuple[str, int, int]] = {"flame": ("seconds", 5, 60), "trace": ("steps", 1, 20)}
#: Kind -> its name in a sentence.
NAMES: dict[RecordingKind, str] = {"flame": "flame graph", "trace": "trace"}


@transaction.atomic
def request_recording(
    job_id: int, actor: str, kind: RecordingKind, rank: int, amount: int, *, native: bool = False
) -> Job:
    """Have a rank of the job record what it does. `jobs.files.recordings` reads the answer.

    amount: seconds of a flame graph, steps of a trace. native: with functions of C in a flame graph. Whoever asks for
    the same while it is recorded shares the answer. Raises UserError for another amount or rank, and Conflict for a
    job without ranks or one that records.
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
            if (recording.kind, recording.rank, recording.amount, recording.native) == (kind, rank, amount, native):
                return job
            raise Conflict(
                f"{recording.by} records a {NAMES[recording.kind]} of rank {recording.rank}, and a training records one"
                " at a time: wait until it is there, and ask again."
            )
    member = _member(job, rank)
    if kind == "trace":
        _check_gpu_is_not_traced(job, member, claims)
    member_id, host = member.member_id, member.host
    number = 1 + max((recording.number for recording in stored), default=0)
    at = timezone.now().isoformat()
    new = Recording(number, kind, job.run.attempt, member_id, host, rank, amount, at, actor, native)
    change(job, recordings={**job.run.recordings, kind: new.stored()})
    raise_revisions(hosts_of(claims))
    return job


def _check_amount(kind: RecordingKind, amount: int) -> None:
    name, least, most = LIMITS[kind]
    if not least <= amount <= most:
        raise field_error(name, f"A {NAMES[kind]} has {least} to {most} {name}, not {amount}.")


def _check_gpu_is_not_traced(job: Job, member: Rank, claims: Sequence[SlotClaim]) -> None:
    """Raise Conflict if a rank of another training is traced on a GPU of this rank: a GPU has one profiler."""
    live.hold(CLUSTER)  # two requests of different trainings come one after the other
    gpus = _gpus_of(member, claims)
    others = SlotClaim.objects.open().filter(slot__host__name=member.host, slot__device_uuid__in=gpus - {""})
    for claim in others.exclude(job=job).select_related("job__run", "slot__host"):
        traced = recording_of(claim.job, "trace")
        if traced is None or traced.host != member.host or not is_under_way(claim.job, traced):
            continue
        row = claim.job.ranks.filter(attempt=traced.attempt, member_id=traced.member_id).first()
        if row is not None and gpus & _gpus_of(row, open_claims(claim.job)) - {""}:
            raise Conflict(
                f"Another training on the same GPU of {member.host} records a trace, and a GPU takes one at a time: ask"
                " again in a minute."
            )


def _gpus_of(member: Rank, claims: Sequence[SlotClaim]) -> set[str]:
    """Return the UUIDs of a rank's GPUs. The process of a script that is not elastic may hold all those of its host."""
    on_host = [claim.slot for claim in claims if claim.slot.host.name == member.host and not claim.slot.virtual]
    is_alone = not member.job.ranks.filter(attempt=member.attempt, host=member.host, exit={}).exclude(pk=member.pk)
    return {slot.device_uuid for slot in on_host if is_alone or slot.index == member.slot}


def _member(job: Job, rank: int) -> Rank:
    """Return the process of a rank. Before the first generation, ranks are numbered as they began."""
    living = list(job.ranks.filter(attempt=job.run.attempt, exit={}).order_by("id"))
    numbers = rank_numbers(job, job.run.attempt) or {row.member_id: place for place, row in enumerate(living)}
    for row in living:
        if numbers.get(row.member_id) == rank:
            return row
    if not living:
        raise Conflict("No rank of the training runs yet: wait until it has started.")
    raise field_error("rank", f"The training has no rank {rank}: it has {len(living)}, numbered from 0.")
