"""Time limits of trainings: their owner is warned before the end, then they stop and are suspended.

The limit is the job's `max_seconds`, from the start of an attempt on. The scheduler plans with it, so it holds
whatever the training does: an elastic one stops after a step with a checkpoint, as if its owner suspended it; the
script of any other gets SIGTERM and its group's grace period.
"""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Min

from jobs.control.lifecycle import HALT_SECONDS, preempt
from jobs.control.transition import Why, change, lock_job, record
from jobs.messages import message
from jobs.models import Job, SlotClaim
from jobs.states import TRAINING, JobState, Reason

__all__ = ["WARNED_SECONDS", "enforce_limits", "limit_end", "warned_before"]

#: Seconds before the end at which the owner is warned, but not in the first nine tenths of the limit.
WARNED_SECONDS = 300


def warned_before(max_seconds: int) -> timedelta:
    return timedelta(seconds=min(WARNED_SECONDS, max_seconds / 10))


def limit_end(job: Job, max_seconds: int | None) -> datetime | None:
    """Return the time at which this limit ends the attempt; None if the job holds no slots or has no limit."""
    if max_seconds is None or job.state not in TRAINING:
        return None
    held = SlotClaim.objects.filter(job=job, attempt=job.run.attempt).aggregate(since=Min("claimed_at"))
    return None if held["since"] is None else held["since"] + timedelta(seconds=max_seconds)


def enforce_limits(now: datetime) -> None:
    """Warn owners of near limits, and stop the jobs that have reached theirs. Call it about once per second."""
    limited = Job.objects.filter(state__in=TRAINING, run__ends_at__lte=now + timedelta(seconds=WARNED_SECONDS))
    for job_id in limited.order_by("pk").values_list("pk", flat=True):
        with transaction.atomic():
            _enforce(lock_job(job_id), now)


def _enforce(job: Job, now: datetime) -> None:
    ends_at, limit = job.run.ends_at, job.max_seconds
    if job.state not in TRAINING or ends_at is None or limit is None:
        return
    grace = None if job.elastic else job.instance_group.reclaim_grace_seconds
    if ends_at <= now:
        why = Why(Reason.TIME_LIMIT, message("limit_reached", max_seconds=limit, grace=grace), "scheduler")
        preempt(job, why, after_stop=JobState.SUSPENDED, within_seconds=HALT_SECONDS)
    elif not job.run.warned and ends_at - warned_before(limit) <= now:
        seconds = round((ends_at - now).total_seconds())
        params = message("limit_near", max_seconds=limit, seconds=seconds, grace=grace)
        change(job, warned=True)
        record(job, Why(Reason.TIME_LIMIT, params, "scheduler"))
