"""Allocation series of a job: its world size over time. For the other modules of jobs.control."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from core import live
from jobs.control.transition import Why
from jobs.messages import message
from jobs.models import AllocationPoint, Generation, Job, JobEvent
from jobs.queries.jobs import allocation_as_json
from jobs.states import GenerationState, Reason, reason_of

__all__ = ["add_point", "cause_of", "close_generations", "end_generations"]


@transaction.atomic
def add_point(
    job: Job, why: Why, *, at: datetime, slots: int, generation: int = 0, pause_ms: float | None = None
) -> None:
    """From `at` on, the job's world size is `slots`. Adding a point again changes nothing."""
    point, is_new = AllocationPoint.objects.get_or_create(
        job=job,
        attempt=job.run.attempt,
        generation=generation,
        slots=slots,
        defaults={"at": at, "reason_code": why.reason, "reason_params": why.params, "pause_ms": pause_ms},
    )
    if not is_new:
        return
    shown = allocation_as_json(point)
    live.publish(live.job_topic(job.pk), "append", {"allocation": [{"job": job.pk, **shown}]})
    # Everybody sees the cluster topic, and a sentence may name other people's jobs.
    anonymous = {**shown, "reason": {**shown["reason"], "text": ""}}
    live.publish(live.CLUSTER, "append", {"allocation": [{"job": job.pk, **anonymous}]})


@transaction.atomic
def close_generations(job: Job) -> None:
    """No generation of the present attempt follows."""
    Generation.objects.filter(job=job, state=GenerationState.ACTIVE).update(state=GenerationState.ENDED)
    Generation.objects.filter(job=job, state=GenerationState.FORMING).update(state=GenerationState.ABANDONED)


@transaction.atomic
def end_generations(job: Job, why: Why, at: datetime) -> None:
    """The job trains no longer: its world size is 0 from `at` on."""
    close_generations(job)
    if job.run.slots:
        add_point(job, why, at=at, slots=0, generation=job.run.generation)


def cause_of(job: Job, generation: Generation, *, lost_ranks: bool) -> Why:
    """Why a generation was formed: the decision that its target came from, or the loss of a rank."""
    if lost_ranks:
        return Why(Reason.RANK_LOST, message("rank_lost"), "executor")
    decided = JobEvent.objects.filter(job=job, detail__target_revision=generation.target_revision)
    event = decided.order_by("seq").first()
    if event is None:
        return Why(reason_of(job.reason_code), job.reason_params, "scheduler")
    return Why(reason_of(event.reason), event.detail, event.actor)
