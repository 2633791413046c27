"""Starts, live resizes and preemptions of jobs. Called by plans, by actions of owners and by the shutdown."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from jobs.control.allocation import add_point
from jobs.control.claims import claim_slots, hosts_of, open_claims, raise_revisions, vacate_claims
from jobs.control.fixed_size import carry_checkpoints
from jobs.control.restoring import look_for_newer_checkpoints
from jobs.control.transition import Why, change, record, transition
from jobs.files.folder import job_folder
from jobs.models import Checkpoint, Job, MetricPoint
from jobs.states import JobState
from models_registry.models import RegisteredModelVersion
from workers.models import Slot

__all__ = ["keep_lead", "mark_running", "preempt", "resize", "start", "stop_ranks"]


@transaction.atomic
def start(job: Job, slots: Sequence[Slot], target: int, why: Why) -> None:
    """Begin the job's next attempt on free `slots`, in rank order. Raises ClaimLost if one is not free any more."""
    attempt = job.run.attempt + 1
    now = timezone.now()
    claims = claim_slots(job, slots, attempt)
    look_for_newer_checkpoints(job)
    resumed = _resume_point(job)
    first_start = job.started_at is None
    job_folder(job).start_attempt(attempt)
    carry_checkpoints(job, attempt)
    transition(
        job,
        JobState.STARTING,
        why,
        attempt=attempt,
        generation=0,
        slots=0,
        target_slots=target,
        target_revision=job.run.target_revision + 1,
        first_max_slots=job.run.first_max_slots or job.max_slots,
        lead_host=claims[0].slot.host.name,
        started_at=job.started_at or now,
        step=resumed.step if resumed else 0,
        epoch=resumed.epoch if resumed else 0,
        error={},
    )
    MetricPoint.objects.filter(job=job, step__gt=job.run.step).delete()
    if first_start:
        add_point(job, why, at=now, slots=0)
    raise_revisions(hosts_of(claims))


@transaction.atomic
def resize(job: Job, claim: Sequence[Slot], vacate: Sequence[Slot], target: int, why: Why) -> None:
    """Give a STARTING or RUNNING job other slots; its ranks follow live. Raises ClaimLost."""
    claim_slots(job, claim, job.run.attempt)
    held = open_claims(job)
    leaving = {slot.pk for slot in vacate}
    revisions = raise_revisions(hosts_of(held))
    vacate_claims([held_claim for held_claim in held if held_claim.slot_id in leaving], revisions)
    change(job, why, target_slots=target, target_revision=job.run.target_revision + 1)
    record(job, why)


@transaction.atomic
def preempt(
    job: Job, why: Why, after_stop: JobState = JobState.PENDING, *, within_seconds: float | None = None
) -> None:
    """Stop a job; once its slots are empty it becomes `after_stop`.

    An elastic job that trains stops by itself, after a step and with a checkpoint of it. If it does not within
    `within_seconds` (None: what its instance group grants), or does not train yet, its ranks are ended.
    """
    grants = float(job.instance_group.reclaim_grace_seconds) if within_seconds is None else within_seconds
    trains = job.state == JobState.RUNNING and job.model.engine == RegisteredModelVersion.Engine.ELASTIC
    transition(
        job,
        JobState.PREEMPTING,
        why,
        after_stop=after_stop,
        target_slots=0,
        target_revision=job.run.target_revision + 1,
        halt_until=timezone.now() + timedelta(seconds=grants) if trains else None,
    )
    stop_ranks(job)


@transaction.atomic
def stop_ranks(job: Job) -> None:
    """Every process of the job shall end; its slots are released as they become empty."""
    held = open_claims(job)
    revisions = raise_revisions(hosts_of(held))
    vacate_claims(held, revisions)


@transaction.atomic
def mark_running(job: Job, why: Why, *, generation: int, slots: int) -> None:
    """Its ranks have formed a generation and train."""
    if job.state == JobState.STARTING:
        transition(job, JobState.RUNNING, why, explains=False, generation=generation, slots=slots)
    else:
        change(job, generation=generation, slots=slots)


@transaction.atomic
def keep_lead(job: Job) -> None:
    """A training job whose lead host holds no slot of it any more gets another one."""
    if job.state not in (JobState.STARTING, JobState.RUNNING):
        return
    claims = open_claims(job)
    hosts = [claim.slot.host.name for claim in claims if claim.vacating_at is None]
    if hosts and job.run.lead_host not in {claim.slot.host.name for claim in claims}:
        change(job, lead_host=hosts[0])
        raise_revisions(hosts_of(claims))


def _resume_point(job: Job) -> Checkpoint | None:
    own = Checkpoint.objects.filter(job=job, problem="")
    newest = own.order_by("-step", "-attempt").first()
    return newest or (job.initial_checkpoint if job.starts_from == Job.StartsFrom.CHECKPOINT else None)
