"""Change the priority and the limits of GPUs of a job, and undo such changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from core.errors import NotFound
from jobs.actions.audit_others import record_for_another
from jobs.actions.checks import Problems, check_enough_virtual_ranks, check_priority, check_slots
from jobs.actions.owner import refuse
from jobs.control.transition import StaleJob, Why, change, lock_job, record
from jobs.control.wake import wake_scheduler
from jobs.messages import message
from jobs.models import Job, JobEvent
from jobs.permissions import Refusal, Refused, Verb
from jobs.queries.jobs import changed_field, changes_of
from jobs.states import UNDOABLE

__all__ = [
    "JobChange",
    "change_job",
    "change_max_slots",
    "change_priority",
    "check_change",
    "undo_change",
    "undo_changes",
]


@dataclass(frozen=True)
class JobChange:
    """New values of a job; None keeps the present one."""

    priority: int | None = None
    max_slots: int | None = None
    #: Of an elastic job that waits.
    min_slots: int | None = None


def change_priority(job_id: int, priority: int, actor: str) -> Job:
    change_job(job_id, JobChange(priority=priority), actor)
    return Job.objects.get(pk=job_id)


def change_max_slots(job_id: int, max_slots: int, actor: str) -> Job:
    change_job(job_id, JobChange(max_slots=max_slots), actor)
    return Job.objects.get(pk=job_id)


@transaction.atomic
def change_job(job_id: int, wanted: JobChange, actor: str) -> list[JobEvent]:
    """Change all of it or nothing; return the events. A job that is not elastic keeps its GPUs while it holds any."""
    job = lock_job(job_id)
    return _change(job, check_change(job, wanted), actor)


def check_change(job: Job, wanted: JobChange) -> dict[str, Any]:
    """Return the columns that change. Raises InvalidSubmission, or Refused if the job's state does not allow it."""
    problems, changes = Problems(), dict[str, Any]()
    refuse(job, Verb.CHANGE)
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
        refuse(job, Verb.CHANGE_START)
        changes["min_slots"] = wanted.min_slots
        if wanted.max_slots is None:
            check_slots(problems, wanted.min_slots, job.max_slots, None, job.model)
    problems.raise_if_any()
    return changes


def _check_max_slots(problems: Problems, job: Job, max_slots: int, min_slots: int) -> dict[str, Any]:
    if not job.elastic and max_slots != job.max_slots:
        refuse(job, Verb.CHANGE_START)
    least = min_slots if job.elastic else max_slots
    # Asking for less is always possible, even while hosts of the group are away.
    check_slots(problems, least, max_slots, job.instance_group if max_slots > job.max_slots else None, job.model)
    if job.virtual_ranks is not None:
        check_enough_virtual_ranks(problems, "max_slots", job.virtual_ranks, max_slots)
    if max_slots == job.max_slots:
        return {}
    return {"max_slots": max_slots} if job.elastic else {"min_slots": least, "max_slots": max_slots}


def undo_change(job_id: int, seq: int, actor: str) -> Job:
    """Restore what the event `seq` changed, unless the same has been changed again since."""
    undo_changes(job_id, [seq], actor)
    return Job.objects.get(pk=job_id)


@transaction.atomic
def undo_changes(job_id: int, seqs: Sequence[int], actor: str) -> list[JobEvent]:
    """Restore what these events changed, all of it or nothing, and return the new events."""
    job = lock_job(job_id)
    changes = {event.seq: event for event in changes_of(job)}
    undone: dict[str, JobEvent] = {}
    for seq in seqs:
        event = changes.get(seq)
        if event is None:
            raise NotFound(f"Event {seq} of job {job_id} changed neither its priority nor its GPUs: nothing to undo.")
        _refuse_if_changed_again(job, event, changes.values())
        undone[changed_field(event)] = event
    wanted = JobChange(**{field: event.detail["old"] for field, event in undone.items()})
    return _change(job, check_change(job, wanted), actor, {field: event.seq for field, event in undone.items()})


def _refuse_if_changed_again(job: Job, event: JobEvent, changes: Iterable[JobEvent]) -> None:
    field = changed_field(event)
    later = [other for other in changes if other.seq > event.seq and changed_field(other) == field]
    if later or getattr(job, field) != event.detail["new"]:
        by = f" by {later[-1].actor}" if later else ""
        raise StaleJob(f"It has been changed again since{by}, to {getattr(job, field)}: change it by hand.")


def _change(job: Job, changes: dict[str, Any], actor: str, undoes: Mapping[str, int] | None = None) -> list[JobEvent]:
    if not changes:
        return []
    before = {field: getattr(job, field) for field in UNDOABLE}
    # The reason that the job shows stays: it says why it has what it has, until the scheduler has decided again.
    change(job, **changes)
    old = {field: before[field] for field in UNDOABLE if field in changes}
    record_for_another(job, actor, "changed", before=old, after={field: changes[field] for field in old})
    # Of others than elastic jobs the minimum goes with the maximum, and is no change of its own.
    fields = [field for field in UNDOABLE if field in changes and (job.elastic or field != "min_slots")]
    events = []
    for field in fields:
        params = message("changed", by=actor, field=field, old=before[field], new=changes[field])
        if undoes and field in undoes:
            params["undoes"] = undoes[field]
        events.append(record(job, Why(UNDOABLE[field], params, actor)))
    wake_scheduler()
    return events
