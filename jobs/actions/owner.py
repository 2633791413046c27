"""What owners and administrators ask of a job: cancel, suspend, resume, hide, change, undo; also of many at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from core.audit.entries import audit
from core.errors import NotFound, UserError, field_error
from jobs.actions.checks import Problems, check_enough_virtual_ranks, check_priority, check_slots
from jobs.control.dispatch import wake_scheduler
from jobs.control.ending import finish
from jobs.control.lifecycle import preempt, stop_ranks
from jobs.control.transition import StaleJob, Why, change, lock_job, record, transition
from jobs.messages import message
from jobs.models import Job, JobEvent
from jobs.permissions import Refusal, Refused, Verb, refusal
from jobs.queries.jobs import changes_of, get_visible_job
from jobs.states import TERMINAL, TRAINING, UNDOABLE, WAITING, JobState, Reason, reason_of

__all__ = [
    "MAX_JOBS",
    "JobChange",
    "Outcome",
    "RefusedJob",
    "cancel",
    "cancel_many",
    "change_job",
    "change_priority_of_many",
    "check_change",
    "hide",
    "resume",
    "suspend",
    "undo_changes",
    "undo_many",
]

#: The longest step, and writing of a checkpoint, that its owner waits for.
_HALT_SECONDS = 60.0
MAX_JOBS = 200


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
    if job.state in (JobState.CANCELLING, JobState.CANCELLED):
        return job
    _refuse(job, Verb.CANCEL)
    _audit_for_another(job, actor, "cancelled")
    if job.state in WAITING:
        why = Why(Reason.CANCELLED_BY_USER, message("cancelled_by", by=actor), actor)
        finish(job, JobState.CANCELLED, why)
        return job
    why = Why(Reason.CANCELLED_BY_USER, message("cancelling", by=actor), actor)
    transition(job, JobState.CANCELLING, why, target_slots=0, halt_until=None)
    stop_ranks(job)
    return job


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
    job = lock_job(job_id)
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
    job = lock_job(job_id)
    changes = {event.seq: event for event in changes_of(job)}
    undone: dict[str, JobEvent] = {}
    for seq in seqs:
        event = changes.get(seq)
        if event is None:
            raise NotFound(f"Event {seq} of job {job_id} changed neither its priority nor its GPUs: nothing to undo.")
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


# --- many jobs: each by itself, so that one that refuses does not hold up the others ---------------------------------


@dataclass(frozen=True)
class RefusedJob:
    job: int
    #: Its name; empty where the user may not know it.
    name: str
    sentence: str
    code: str


@dataclass(frozen=True)
class Outcome:
    done: list[int] = field(default_factory=list)
    refused: list[RefusedJob] = field(default_factory=list)
    #: Of those done: the events by which it can be undone.
    changes: dict[int, list[int]] = field(default_factory=dict)


def cancel_many(jobs: Sequence[int], user: User) -> Outcome:
    """Stop those of these jobs for good that the user may see and that are not over."""

    def stop(job_id: int) -> list[JobEvent]:
        cancel(job_id, user.get_username())
        return []

    return _each(jobs, user, stop)


def change_priority_of_many(jobs: Sequence[int], priority: int, user: User) -> Outcome:
    problems = Problems()
    check_priority(problems, priority)
    problems.raise_if_any()
    return _each(jobs, user, partial(change_job, wanted=JobChange(priority=priority), actor=user.get_username()))


def undo_many(changes: Mapping[int, Sequence[int]], user: User) -> Outcome:
    """Undo what these events changed: all of it for each job, or nothing if it has been changed again since."""
    return _each(list(changes), user, lambda job_id: undo_changes(job_id, changes[job_id], user.get_username()))


def _each(jobs: Sequence[int], user: User, act: Callable[[int], list[JobEvent]]) -> Outcome:
    if not jobs:
        raise field_error("jobs", "Choose at least one training.")
    if len(jobs) > MAX_JOBS:
        raise field_error("jobs", f"Choose at most {MAX_JOBS} trainings at once, not {len(jobs)}.")
    outcome = Outcome()
    for job_id in dict.fromkeys(jobs):
        name = ""
        try:
            name = get_visible_job(user, job_id).name
            events = act(job_id)
        except UserError as error:
            outcome.refused.append(RefusedJob(job_id, name, error.message, error.code))
        else:
            outcome.done.append(job_id)
            if events:
                outcome.changes[job_id] = [event.seq for event in events]
    return outcome
