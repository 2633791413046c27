"""Stop of all trainings before the embedded stack stops, each in the way in which it loses least.

Called by `webapp.embedded` only.
"""

from __future__ import annotations

from django.db import transaction

from jobs.control.lifecycle import preempt
from jobs.control.transition import Why, lock_job
from jobs.messages import message
from jobs.models import Job, SlotClaim
from jobs.states import JobState, Reason

__all__ = ["slots_in_use", "stop_trainings"]

_TRAINING = (JobState.STARTING, JobState.RUNNING)


def stop_trainings(within_seconds: float) -> int:
    """Ask all of them to stop; they wait in the queue then. Returns how many were asked.

    No scheduler may lead: it would start them again.
    """
    asked = Job.objects.filter(state__in=_TRAINING).order_by("pk").values_list("pk", flat=True)
    return sum(_stop(job_id, within_seconds) for job_id in asked)


def slots_in_use() -> int:
    return SlotClaim.objects.filter(released_at__isnull=True).count()


@transaction.atomic
def _stop(job_id: int, within_seconds: float) -> bool:
    job = lock_job(job_id)
    if job.state not in _TRAINING:
        return False
    why = Why(Reason.STACK_STOPPED, message("stack_stopping"), "system")
    preempt(job, why, within_seconds=within_seconds)
    return True
