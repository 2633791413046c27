"""Halts: trainings that are to stop by themselves after a step, with a checkpoint of it, or are ended when late.

Called by `jobs.control.journals`, and once a second by the scheduler's process.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from jobs.control.claims import hosts_of_attempt, raise_revisions
from jobs.control.judgement import judge_job
from jobs.control.transition import Why, change, lock_job, record
from jobs.messages import message
from jobs.models import Checkpoint, Job
from jobs.states import JobState, Reason

__all__ = ["end", "give_up_halts", "store"]


def store(job: Job, step: int) -> None:
    """Store that all ranks stopped after the same step, whose checkpoint is published."""
    record(job, Why(Reason.HALTED, message("halted", step=step), "executor"))
    end(job)


def end(job: Job) -> None:
    """Nothing is left to wait for: what still runs of the attempt is ended."""
    if job.run.halt_until is None:
        return
    change(job, halt_until=None)
    raise_revisions(hosts_of_attempt(job))


def give_up_halts(now: datetime) -> None:
    """End the ranks of jobs that did not stop by themselves in time. Call it about once per second."""
    late = Job.objects.filter(state=JobState.PREEMPTING, run__halt_until__lte=now)
    for job_id in late.order_by("pk").values_list("pk", flat=True):
        _give_up(job_id, now)


@transaction.atomic
def _give_up(job_id: int, now: datetime) -> None:
    job = lock_job(job_id)
    if job.state != JobState.PREEMPTING or job.run.halt_until is None or job.run.halt_until > now:
        return
    newest = Checkpoint.objects.filter(job=job, problem="").order_by("-step", "-attempt").first()
    params = message("halt_timeout", step=newest.step if newest else None)
    record(job, Why(Reason.HALT_TIMEOUT, params, "scheduler"))
    end(job)
    judge_job(job.pk)
