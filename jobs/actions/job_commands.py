"""Actions of owners and administrators on a job: cancel, suspend, resume, hide, wait for its ranks, change, undo.

Cancel, change and undo have two steps: a check of one job, and an action on any number of checked and locked jobs,
which `jobs.actions.bulk` uses, too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from django.db import transaction
from django.utils import timezone

from core.audit.entries import Audited, audit_all
from core.edits import UNSEEN, Author, Seen
from core.errors import NotFound, field_error
from jobs.actions.placement_checks import placement_of
from jobs.actions.submission_checks import (
    Problems,
    check_enough_virtual_ranks,
    check_option,
    check_priority,
    check_slots,
)
from jobs.control.dispatch import wake_scheduler
from jobs.control.gangs import put_off
from jobs.control.idle import keep
from jobs.control.job_end import finish
from jobs.control.lifecycle import HALT_SECONDS, preempt, stop_ranks
from jobs.control.time_limits import limit_end
from jobs.control.transition import (
    StaleJob,
    Why,
    change,
    change_all,
    lock_job,
    lock_jobs,
    record,
    record_all,
    transition,
    transition_all,
)
from jobs.messages import message
from jobs.models import Job, JobEvent
from jobs.permissions import Refusal, Refused, Verb, refusal
from jobs.queries.jobs import changes_of
from jobs.states import TERMINAL, TRAINING, UNDOABLE, WAITING, JobState, Reason, reason_of

__all__ = [
    "CheckedChange",
    "JobChange",
    "cancel",
    "cancel_locked",
    "change_authors",
    "change_job",
    "change_locked",
    "changeable_values",
    "check_change",
    "check_undo",
    "hide",
    "keep_idle_gpus",
    "may_be_stopped",
    "prune",
    "rank_in_bundle",
    "resume",
    "suspend",
    "undo_changes",
    "wait_for_ranks",
]

#: Column -> value.
Values: TypeAlias = Mapping[str, Any]

_MAX_WAIT_MINUTES = 7 * 24 * 60


@dataclass(frozen=True)
class JobChange:
    """New values of a job; None keeps the current value."""

    priority: int | None = None
    max_slots: int | None = None
    #: Only for an elastic job that waits.
    min_slots: int | None = None
    #: 0: no limit.
    max_seconds: int | None = None

    @property
    def given(self) -> dict[str, int]:
        """Return the values that are given."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class CheckedChange:
    """A change that the state of its job allows."""

    job: Job
    #: New values of the columns that differ.
    columns: Values
    #: Column -> number of the event that the change undoes.
    undoes: Mapping[str, int] = field(default_factory=dict)


@transaction.atomic
def cancel(job_id: int, actor: str) -> Job:
    """Stop the job for good. Idempotent."""
    job = lock_job(job_id)
    if may_be_stopped(job):
        cancel_locked([job], actor)
    return job


def may_be_stopped(job: Job) -> bool:
    """Return False for a job that is cancelling or cancelled. Raises Refused for a job that finished otherwise."""
    if job.state in (JobState.CANCELLING, JobState.CANCELLED):
        return False
    _refuse(job, Verb.CANCEL)
    return True


@transaction.atomic
def cancel_locked(jobs: Sequence[Job], actor: str) -> None:
    """Stop these jobs for good, for which `may_be_stopped` is true. Waiting jobs finish at once."""
    _audit_for_others(jobs, actor, "cancelled")
    _stop_for_good(
        jobs,
        waiting=Why(Reason.CANCELLED_BY_USER, message("cancelled_by", by=actor), actor),
        holding=Why(Reason.CANCELLED_BY_USER, message("cancelling", by=actor), actor),
    )


@transaction.atomic
def prune(job_id: int, sentence: str) -> Job:
    """Stop a study's training for good, because others are better. No effect on a job that has finished."""
    job = lock_job(job_id)
    if refusal(Verb.CANCEL, job.state) is None:
        why = Why(Reason.PRUNED, message("pruned", sentence=sentence), "study")
        _stop_for_good([job], waiting=why, holding=why)
    return job


@transaction.atomic
def rank_in_bundle(job_id: int, rank: int) -> None:
    """Serve the job before those of its bundle with a lower rank."""
    job = lock_job(job_id)
    if job.state not in TERMINAL:
        change_all([(job, {"bundle_rank": rank})])
        wake_scheduler()


def _stop_for_good(jobs: Sequence[Job], *, waiting: Why, holding: Why) -> None:
    """Stop the jobs, with a reason for those that hold no slots and one for the others."""
    free = [job for job in jobs if job.state in WAITING]
    held = [job for job in jobs if job.state not in WAITING]
    finish(free, JobState.CANCELLED, waiting)
    transition_all(held, JobState.CANCELLING, holding, target_slots=0, halt_until=None)
    stop_ranks(held)


@transaction.atomic
def hide(numbers: Iterable[int], actor: str) -> None:
    """Delete the jobs for WMLA's clients: stop the jobs and hide them there. Idempotent."""
    jobs = [job for job in lock_jobs(numbers) if job.hidden_at is None]
    over = [job for job in jobs if job.state in TERMINAL]
    cancel_locked([job for job in jobs if job not in over and may_be_stopped(job)], actor)
    _audit_for_others(over, actor, "deleted")
    now = timezone.now()
    change_all([(job, {"hidden_at": now}) for job in jobs])
    record_all([(job, Why(reason_of(job.reason_code), message("hidden", by=actor), actor)) for job in jobs])


@transaction.atomic
def suspend(job_id: int, actor: str) -> Job:
    """Suspend the job. A running elastic job stops after the current step and resumes there."""
    job = lock_job(job_id)
    if job.state == JobState.SUSPENDED:
        return job
    _refuse(job, Verb.SUSPEND)
    _audit_for_others([job], actor, "suspended")
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
        preempt(job, why, after_stop=JobState.SUSPENDED, within_seconds=HALT_SECONDS)
    return job


@transaction.atomic
def resume(job_id: int, actor: str) -> Job:
    """Queue a suspended job for GPUs again."""
    job = lock_job(job_id)
    _refuse(job, Verb.RESUME)
    why = Why(Reason.RESUMED_BY_USER, message("resumed", by=actor), actor)
    if job.state == JobState.SUSPENDED:
        transition(job, JobState.PENDING, why)
    else:
        change(job, why, after_stop=JobState.PENDING)
        record(job, why)
    _audit_for_others([job], actor, "resumed")
    wake_scheduler()
    return job


@transaction.atomic
def wait_for_ranks(job_id: int, actor: str, minutes: int) -> Job:
    """Postpone the end of ranks that stay after others have exited with 0 to this many minutes from now, at least."""
    if not 1 <= minutes <= _MAX_WAIT_MINUTES:
        raise field_error("minutes", f"Wait for 1 to {_MAX_WAIT_MINUTES} minutes, which is a week.")
    job = lock_job(job_id)
    _refuse(job, Verb.WAIT)
    if not put_off(job, timedelta(minutes=minutes), timezone.now(), actor):
        raise Refused(Verb.WAIT, Refusal.NOBODY_STAYS)
    _audit_for_others([job], actor, "extended")
    return job


@transaction.atomic
def keep_idle_gpus(job_id: int, actor: str) -> Job:
    """Let a training that was warned of idle GPUs keep them for an hour, three times in an attempt."""
    job = lock_job(job_id)
    _refuse(job, Verb.KEEP)
    if not keep(job, actor):
        raise Refused(Verb.KEEP, Refusal.NOT_IDLE)
    _audit_for_others([job], actor, "extended")
    return job


@transaction.atomic
def change_job(job_id: int, wanted: JobChange, actor: str, seen: Seen = UNSEEN) -> list[JobEvent]:
    """Apply all changes or none; return the events. A job that is not elastic keeps its GPUs while it holds any.

    seen: values of the job that the user has seen. Raises EditConflict or Outdated.
    """
    job = lock_job(job_id)
    wanted = JobChange(**seen.merged(wanted.given, changeable_values(job), lambda: change_authors(job)))
    return change_locked([CheckedChange(job, check_change(job, wanted))], actor)


def changeable_values(job: Job) -> dict[str, int]:
    """Return the values that `change_job` can change, in the shape of `JobChange`."""
    return {name: getattr(job, name) or 0 for name in JobChange.__dataclass_fields__}


def change_authors(job: Job) -> dict[str, Author]:
    """Return column -> author of its newest change."""
    return {event.detail["field"]: Author(event.actor, event.at) for event in changes_of([job])[job.pk]}


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
            check_slots(problems, wanted.min_slots, job.max_slots, None, job.model, job)
    if wanted.max_seconds is not None and (limit := wanted.max_seconds or None) != job.max_seconds:
        check_option(problems, "max_seconds", limit)
        changes["max_seconds"] = limit
    problems.raise_if_any()
    return changes


def _check_max_slots(problems: Problems, job: Job, max_slots: int, min_slots: int) -> dict[str, Any]:
    if not job.elastic and max_slots != job.max_slots:
        _refuse(job, Verb.CHANGE_START)
    least = min_slots if job.elastic else max_slots
    # A lower maximum is always possible, even while hosts of the group are offline.
    group = job.instance_group if max_slots > job.max_slots else None
    check_slots(problems, least, max_slots, group, job.model, job)
    check_enough_virtual_ranks(problems, job, max_slots)
    if max_slots == job.max_slots:
        return {}
    if job.elastic:
        return {"max_slots": max_slots}
    return {"min_slots": least, "max_slots": max_slots, **placement_of(job.model, job, max_slots)}


@transaction.atomic
def undo_changes(job_id: int, seqs: Sequence[int], actor: str) -> list[JobEvent]:
    """Restore the values from before these events, all or none, and return the new events.

    Raises StaleJob for a column that has been changed again since.
    """
    job = lock_job(job_id)
    return change_locked([check_undo(job, seqs, changes_of([job])[job.pk])], actor)


def check_undo(job: Job, seqs: Iterable[int], told: Sequence[JobEvent]) -> CheckedChange:
    """Return the change that undoes these events. told: all changes of the job. Raises like `undo_changes`."""
    changes = {event.seq: event for event in told}
    undone: dict[str, JobEvent] = {}
    for seq in seqs:
        event = changes.get(seq)
        if event is None:
            raise NotFound(f"Event {seq} of training {job.pk} changed no priority and no limit: nothing to undo.")
        column = event.detail["field"]
        later = [other for other in changes.values() if other.seq > seq and other.detail["field"] == column]
        if later or getattr(job, column) != event.detail["new"]:
            by = f" by {later[-1].actor}" if later else ""
            raise StaleJob(
                f"The value has been changed again{by}, to {getattr(job, column)}: edit it instead of undoing."
            )
        undone[column] = event
    wanted = JobChange(**{column: event.detail["old"] or 0 for column, event in undone.items()})
    return CheckedChange(job, check_change(job, wanted), {column: event.seq for column, event in undone.items()})


@transaction.atomic
def change_locked(changes: Iterable[CheckedChange], actor: str) -> list[JobEvent]:
    """Apply the changes to jobs that the caller has locked; return the events."""
    changes = [one for one in changes if one.columns]
    if not changes:
        return []
    values = {one.job.pk: ({name: getattr(one.job, name) for name in one.columns}, one.columns) for one in changes}
    told = [(one.job, why) for one in changes for why in _whys(one, actor)]
    # The job keeps its reason, which explains its current GPUs, until the scheduler has decided again.
    change_all([(one.job, _with_consequences(one)) for one in changes])
    _audit_for_others([one.job for one in changes], actor, "changed", values)
    wake_scheduler()
    return record_all(told)


def _with_consequences(one: CheckedChange) -> Values:
    """Return the columns, with what follows: a new time limit warns again, a new maximum is tried again."""
    changed = dict(one.columns)
    if "max_seconds" in changed:
        changed |= {"ends_at": limit_end(one.job, changed["max_seconds"]), "warned": False}
    if "max_slots" in changed:
        changed["growth_limit"] = None
    return changed


def _whys(one: CheckedChange, actor: str) -> Iterator[Why]:
    for column in UNDOABLE:
        if column not in one.columns or (column == "min_slots" and not one.job.elastic):
            continue  # a fixed job's minimum equals its maximum: one event
        params = message("changed", by=actor, field=column, old=getattr(one.job, column), new=one.columns[column])
        if column in one.undoes:
            params["undoes"] = one.undoes[column]
        yield Why(UNDOABLE[column], params, actor)


def _refuse(job: Job, verb: Verb) -> None:
    if why := refusal(verb, job.state, job.run.after_stop):
        raise Refused(verb, why)


def _audit_for_others(
    jobs: Iterable[Job], actor: str, verb: str, values: Mapping[int, tuple[Values, Values]] = {}
) -> None:
    """Write an audit entry for each job that `actor`, a user name, does not own.

    values: job -> its values before and after.
    """
    others = [job for job in jobs if actor != job.owner.get_username()]
    audit_all(actor, verb, "job", [Audited(job.pk, job.name, *values.get(job.pk, ())) for job in others])
