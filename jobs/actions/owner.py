"""What owners and administrators ask of a job: cancel, suspend, resume, hide, change, undo.

`cancel_locked`, `change_locked` and `undo_locked` do so to a job that the caller has locked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from core.audit.entries import audit
from core.errors import NotFound
from jobs.actions.checks import Problems, check_enough_virtual_ranks, check_priority, check_slots
from jobs.control.dispatch import wake_scheduler
from jobs.control.ending import finish
from jobs.control.lifecycle import preempt, stop_ranks
from jobs.control.transition import StaleJob, Why, change, lock_job, record, transition
from jobs.messages import message
from jobs.models import Job, JobEvent
from jobs.permissions import Refusal, Refused, Verb, refusal
from jobs.queries.jobs import changes_of
from jobs.states import TERMINAL, TRAINING, UNDOABLE, WAITING, JobState, Reason, reason_of

__all__ = [
    "JobChange",
    "cancel",
    "cancel_locked",
    "change_job",
    "change_locked",
    "check_change",
    "hide",
    "resume",
    "suspend",
    "undo_changes",
    "undo_locked",
]

#: The longest step, and writing of a checkpoint, that its owner waits for.
_HALT_SECONDS = 60.0


@dataclass(frozen=True)
class JobChange:
    """New values of a job; None keeps the present one."""

    priority: int | None = None
    max_slots: int | None = None
    #: Of an elastic job that waits.
    min_slots: int | None = None


@transaction.atomic
def cancel(job_id: int, actor: str) -> Job:
    """Stop the job for good. Cancelling it again while it stops, or once it is cancelled, changes nothing."""
    job = lock_job(job_id)
    if cancel_locked(job, actor):
        stop_ranks([job])
    return job


@transaction.atomic
def cancel_locked(job: Job, actor: str) -> bool:
    """Like `cancel`; True if the caller has to stop the job's ranks."""
    if job.state in (JobState.CANCELLING, JobState.CANCELLED):
        return False
    _refuse(job, Verb.CANCEL)
    _audit_for_another(job, actor, "cancelled")
    if job.state in WAITING:
        finish(job, JobState.CANCELLED, Why(Reason.CANCELLED_BY_USER, message("cancelled_by", by=actor), actor))
        return False
    why = Why(Reason.CANCELLED_BY_USER, message("cancelling", by=actor), actor)
    transition(job, JobState.CANCELLING, why, target_slots=0, halt_until=None)
    return True


@transaction.atomic
def hide(job_id: int, actor: str) -> Job:
    """Delete the job as WMLA's clients mean it: stop it, and hide it from them. Repeating this changes nothing."""
    job = lock_job(job_id)
    if job.hidden_at is not None:
        return job
    if job.state not in TERMINAL:
        job = cancel(job_id, actor)
    else:
        _audit_for_another(job, actor, "deleted")
    change(job, hidden_at=timezone.now())
    reason = reason_of(job.reason_code) if job.state in (*TERMINAL, JobState.CANCELLING) else Reason.CANCELLED_BY_USER
    record(job, Why(reason, message("hidden", by=actor), actor))
    return job


@transaction.atomic
def suspend(job_id: int, actor: str) -> Job:
    """Hold the job back. One that trains stops after the present step and continues there when it is resumed."""
    job = lock_job(job_id)
    if job.state == JobState.SUSPENDED:
        return job
    _refuse(job, Verb.SUSPEND)
    _audit_for_another(job, actor, "suspended")
    params = message("suspended", by=actor)
    if not job.elastic and job.state in TRAINING:
        params = message("suspended_with_grace", by=actor, seconds=job.instance_group.reclaim_grace_seconds)
    why = Why(Reason.SUSPENDED_BY_USER, params, actor)
    if job.state == JobState.PENDING:
        transition(job, JobState.SUSPENDED, why)
    elif job.state == JobState.PREEMPTING:
        change(job, why, after_stop=JobState.SUSPENDED)
        record(job, why)
    else:
        preempt(job, why, after_stop=JobState.SUSPENDED, within_seconds=_HALT_SECONDS)
    return job


@transaction.atomic
def resume(job_id: int, actor: str) -> Job:
    """Let a suspended job wait for GPUs again."""
    job = lock_job(job_id)
    _refuse(job, Verb.RESUME)
    why = Why(Reason.RESUMED_BY_USER, message("resumed", by=actor), actor)
    if job.state == JobState.SUSPENDED:
        transition(job, JobState.PENDING, why)
    else:
        change(job, why, after_stop=JobState.PENDING)
        record(job, why)
    _audit_for_another(job, actor, "resumed")
    wake_scheduler()
    return job


@transaction.atomic
def change_job(job_id: int, wanted: JobChange, actor: str) -> list[JobEvent]:
    """Change all of it or nothing; return the events. A job that is not elastic keeps its GPUs while it holds any."""
    return change_locked(lock_job(job_id), wanted, actor)


def change_locked(job: Job, wanted: JobChange, actor: str) -> list[JobEvent]:
    """Like `change_job`."""
    return _change(job, check_change(job, wanted), actor)


def check_change(job: Job, wanted: JobChange) -> dict[str, Any]:
    """Return the columns that change. Raises InvalidSubmission, or Refused if the job's state does not allow it."""
    problems, changes = Problems(), dict[str, Any]()
    _refuse(job, Verb.CHANGE)
    if wanted.priority is not None:
        check_priority(problems, wanted.priority, job.instance_group)
        if wanted.priority != job.priority:
            changes["priority"] = wanted.priority
    if wanted.max_slots is not None:
        least = job.min_slots if wanted.min_slots is None else wanted.min_slots
        changes |= _check_max_slots(problems, job, wanted.max_slots, least)
    if wanted.min_slots is not None and wanted.min_slots != job.min_slots:
        if not job.elastic:
            raise Refused(Verb.CHANGE_START, Refusal.NOT_ELASTIC)
        _refuse(job, Verb.CHANGE_START)
        changes["min_slots"] = wanted.min_slots
        if wanted.max_slots is None:
            check_slots(problems, wanted.min_slots, job.max_slots, None, job.model)
    problems.raise_if_any()
    return changes


def _check_max_slots(problems: Problems, job: Job, max_slots: int, min_slots: int) -> dict[str, Any]:
    if not job.elastic and max_slots != job.max_slots:
        _refuse(job, Verb.CHANGE_START)
    least = min_slots if job.elastic else max_slots
    # Asking for less is always possible, even while hosts of the group are away.
    check_slots(problems, least, max_slots, job.instance_group if max_slots > job.max_slots else None, job.model)
    if job.virtual_ranks is not None:
        check_enough_virtual_ranks(problems, "max_slots", job.virtual_ranks, max_slots)
    if max_slots == job.max_slots:
        return {}
    return {"max_slots": max_slots} if job.elastic else {"min_slots": least, "max_slots": max_slots}


@transaction.atomic
def undo_changes(job_id: int, seqs: Sequence[int], actor: str) -> list[JobEvent]:
    """Restore what these events changed, all of it or nothing, and return the new events.

    Raises StaleJob for what has been changed again since.
    """
    return undo_locked(lock_job(job_id), seqs, actor)


def undo_locked(job: Job, seqs: Iterable[int], actor: str) -> list[JobEvent]:
    """Like `undo_changes`."""
    changes = {event.seq: event for event in changes_of(job)}
    undone: dict[str, JobEvent] = {}
    for seq in seqs:
        event = changes.get(seq)
        if event is None:
            raise NotFound(f"Event {seq} of job {job.pk} changed neither its priority nor its GPUs: nothing to undo.")
        column = event.detail["field"]
        later = [other for other in changes.values() if other.seq > seq and other.detail["field"] == column]
        if later or getattr(job, column) != event.detail["new"]:
            by = f" by {later[-1].actor}" if later else ""
            raise StaleJob(f"It has been changed again since{by}, to {getattr(job, column)}: change it by hand.")
        undone[column] = event
    wanted = JobChange(**{column: event.detail["old"] for column, event in undone.items()})
    return _change(job, check_change(job, wanted), actor, {column: event.seq for column, event in undone.items()})


def _change(job: Job, changes: Mapping[str, Any], actor: str, undoes: Mapping[str, int] = {}) -> list[JobEvent]:
    if not changes:
        return []
    columns = [column for column in UNDOABLE if column in changes]
    before = {column: getattr(job, column) for column in columns}
    # The reason that the job shows stays: it says why it has what it has, until the scheduler has decided again.
    change(job, **changes)
    _audit_for_another(job, actor, "changed", before=before, after={column: changes[column] for column in columns})
    events = []
    for column in columns:
        if column == "min_slots" and not job.elastic:
            continue  # it goes with the maximum, and is no change of its own
        params = message("changed", by=actor, field=column, old=before[column], new=changes[column])
        if column in undoes:
            params["undoes"] = undoes[column]
        events.append(record(job, Why(UNDOABLE[column], params, actor)))
    wake_scheduler()
    return events


def _refuse(job: Job, verb: Verb) -> None:
    if why := refusal(verb, job.state, job.run.after_stop):
        raise Refused(verb, why)


def _audit_for_another(job: Job, actor: str, verb: str, **values: Mapping[str, Any]) -> None:
    """Write an audit entry besides the job's history, unless `actor`, a user's name, is its owner."""
    if actor != job.owner.get_username():
        audit(actor, verb, kind="job", key=job.pk, name=job.name, **values)
