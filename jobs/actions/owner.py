"""Cancel, suspend and resume a job. Changes of its priority and its GPUs are in change.py."""

from __future__ import annotations

from django.db import transaction

from jobs.actions.audit_others import record_for_another
from jobs.control.ending import finish_cancelled
from jobs.control.lifecycle import preempt, stop_ranks
from jobs.control.transition import Why, change, lock_job, record, transition
from jobs.control.wake import wake_scheduler
from jobs.messages import message
from jobs.models import Job
from jobs.permissions import Refused, Verb, refusal
from jobs.states import TRAINING, WAITING, JobState, Reason

__all__ = ["cancel", "refuse", "resume", "suspend"]

#: The longest step, and writing of a checkpoint, that its owner waits for.
_HALT_SECONDS = 60.0


@transaction.atomic
def cancel(job_id: int, actor: str) -> Job:
    """Stop the job for good. Cancelling it again while it stops, or once it is cancelled, changes nothing."""
    job = lock_job(job_id)
    if job.state in (JobState.CANCELLING, JobState.CANCELLED):
        return job
    refuse(job, Verb.CANCEL)
    record_for_another(job, actor, "cancelled")
    if job.state in WAITING:
        finish_cancelled(job, Why(Reason.CANCELLED_BY_USER, message("cancelled_by", by=actor), actor))
        return job
    why = Why(Reason.CANCELLED_BY_USER, message("cancelling", by=actor), actor)
    transition(job, JobState.CANCELLING, why, target_slots=0, halt_until=None)
    stop_ranks(job)
    return job


@transaction.atomic
def suspend(job_id: int, actor: str) -> Job:
    """Hold the job back. One that trains stops after the present step and continues there when it is resumed."""
    job = lock_job(job_id)
    if job.state == JobState.SUSPENDED:
        return job
    refuse(job, Verb.SUSPEND)
    record_for_another(job, actor, "suspended")
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
    refuse(job, Verb.RESUME)
    why = Why(Reason.RESUMED_BY_USER, message("resumed", by=actor), actor)
    if job.state == JobState.SUSPENDED:
        transition(job, JobState.PENDING, why)
    else:
        change(job, why, after_stop=JobState.PENDING)
        record(job, why)
    record_for_another(job, actor, "resumed")
    wake_scheduler()
    return job


def refuse(job: Job, verb: Verb) -> None:
    if why := refusal(verb, job.state, job.run.after_stop):
        raise Refused(verb, why)
