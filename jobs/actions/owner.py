"""What the owner of a job asks of it: cancel, hold back, let go on. Priority and GPUs are in change.py."""

from __future__ import annotations

from django.db import transaction

from jobs.actions.audit_others import record_for_another
from jobs.control.ending import finish_cancelled
from jobs.control.lifecycle import preempt, stop_ranks
from jobs.control.transition import StaleJob, Why, change, lock_job, record, transition
from jobs.control.wake import wake_scheduler
from jobs.models import Job
from jobs.states import TERMINAL, JobState, Reason

__all__ = ["cancel", "refuse_if_over", "resume", "suspend"]

_HOLDING_NOTHING = (JobState.PENDING, JobState.SUSPENDED)
_TRAINING = (JobState.STARTING, JobState.RUNNING)
#: The longest step, and writing of a checkpoint, that its owner waits for.
_HALT_SECONDS = 60.0


@transaction.atomic
def cancel(job_id: int, actor: str) -> Job:
    """Stop the job for good. Cancelling it again while it stops, or once it is cancelled, changes nothing."""
    job = lock_job(job_id)
    if job.state in (JobState.CANCELLING, JobState.CANCELLED):
        return job
    record_for_another(job, actor, "cancelled")
    if job.state in _HOLDING_NOTHING:
        finish_cancelled(job, Why(Reason.CANCELLED_BY_USER, f"Cancelled by {actor}.", actor))
        return job
    refuse_if_over(job, "cancel")
    why = Why(Reason.CANCELLED_BY_USER, f"{actor} cancels it; its processes are told to end.", actor)
    transition(job, JobState.CANCELLING, why, target_slots=0, halt_until=None)
    stop_ranks(job)
    return job


@transaction.atomic
def suspend(job_id: int, actor: str) -> Job:
    """Hold the job back; one that trains stops after the step under way and continues there when it is resumed."""
    job = lock_job(job_id)
    if job.state == JobState.SUSPENDED:
        return job
    refuse_if_over(job, "suspend")
    record_for_another(job, actor, "suspended")
    text = f"{actor} holds it back."
    if not job.elastic and job.state in _TRAINING:
        text = f"{text} Its script gets SIGTERM and {job.instance_group.reclaim_grace_seconds} s to save."
    why = Why(Reason.SUSPENDED_BY_USER, text, actor)
    if job.state == JobState.PENDING:
        transition(job, JobState.SUSPENDED, why)
    elif job.state == JobState.PREEMPTING:
        change(job, why, after_stop=JobState.SUSPENDED)
        record(job, why)
    elif job.state in _TRAINING:
        preempt(job, why, after_stop=JobState.SUSPENDED, within_seconds=_HALT_SECONDS)
    else:
        raise StaleJob(f"Job {job.pk} is being cancelled: it cannot be suspended any more.")
    return job


@transaction.atomic
def resume(job_id: int, actor: str) -> Job:
    """Let a suspended job wait for GPUs again."""
    job = lock_job(job_id)
    why = Why(Reason.RESUMED_BY_USER, f"{actor} lets it continue.", actor)
    if job.state == JobState.SUSPENDED:
        transition(job, JobState.PENDING, why)
    elif job.state == JobState.PREEMPTING and job.after_stop == JobState.SUSPENDED:
        change(job, why, after_stop=JobState.PENDING)
        record(job, why)
    else:
        raise StaleJob(f"Job {job.pk} is {job.state}: only a suspended job can be resumed.")
    record_for_another(job, actor, "resumed")
    wake_scheduler()
    return job


def refuse_if_over(job: Job, verb: str) -> None:
    if job.state in TERMINAL:
        raise StaleJob(f"Job {job.pk} is {job.state}: it is too late to {verb} it. Clone it to train again.")
