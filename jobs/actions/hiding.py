"""Deleting as WMLA's clients mean it: the job is stopped, and these clients no longer see it."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from jobs.actions.audit_others import record_for_another
from jobs.actions.owner import cancel
from jobs.control.transition import Why, change, lock_job, record
from jobs.messages import message
from jobs.models import Job
from jobs.states import TERMINAL, JobState, Reason, reason_of

__all__ = ["hide"]


@transaction.atomic
def hide(job_id: int, actor: str) -> Job:
    """Stop the job and hide it from WMLA's clients. Repeating this changes nothing."""
    job = lock_job(job_id)
    if job.hidden_at is not None:
        return job
    if job.state not in TERMINAL:
        job = cancel(job_id, actor)
    else:
        record_for_another(job, actor, "deleted")
    change(job, hidden_at=timezone.now())
    reason = reason_of(job.reason_code) if job.state in (*TERMINAL, JobState.CANCELLING) else Reason.CANCELLED_BY_USER
    record(job, Why(reason, message("hidden", by=actor), actor))
    return job
