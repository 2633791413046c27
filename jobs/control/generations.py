"""Generation and rank rows, from what the coordinator reports. Called by `jobs.control.journals` only."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import transaction
from tidepool.protocol import GenerationActive, GenerationPlanned, to_json

from jobs.control.allocation import add_point, cause_of
from jobs.control.lifecycle import mark_running
from jobs.control.transition import Why
from jobs.messages import message
from jobs.models import Generation, Job, Rank
from jobs.states import HOLDING, GenerationState, RankState, Reason

__all__ = ["abandon", "activate", "enlist", "plan"]


@transaction.atomic
def plan(job: Job, planned: GenerationPlanned) -> None:
    """Store that the coordinator forms a generation; one that it was forming before is void."""
    own = Generation.objects.filter(job=job)
    own.filter(state=GenerationState.FORMING).update(state=GenerationState.ABANDONED)
    own.get_or_create(
        job=job,
        attempt=job.run.attempt,
        number=planned.generation,
        defaults={
            "state": GenerationState.FORMING if job.state in HOLDING else GenerationState.ABANDONED,
            "world_size": len(planned.members),
            "members": [
                {"member_id": member.member_id, "host": member.host, "slot": member.slot, "rank": None}
                for member in planned.members
            ],
            "target_revision": planned.target_revision,
            "planned_at": _moment(planned.at),
        },
    )


@transaction.atomic
def activate(job: Job, active: GenerationActive) -> None:
    """Store that the ranks train in the generation from now on: this, and not the target, is the job's size."""
    own = Generation.objects.filter(job=job)
    own.filter(state=GenerationState.ACTIVE).update(state=GenerationState.SUPERSEDED)
    generation, _ = own.update_or_create(
        job=job,
        attempt=job.run.attempt,
        number=active.generation,
        defaults={
            "state": GenerationState.ACTIVE if job.state in HOLDING else GenerationState.ENDED,
            "world_size": active.world_size,
            "members": [to_json(member) for member in active.members],
            "target_revision": active.target_revision,
            "active_at": _moment(active.at),
        },
    )
    if job.state in HOLDING:
        _update_ranks(job, generation)
        _run(job, generation)
    add_point(
        job,
        cause_of(job, generation, lost_ranks=active.cause == "failure"),
        at=_moment(active.at),
        slots=generation.world_size,
        generation=generation.number,
        pause_ms=active.pause_ms,
    )


@transaction.atomic
def abandon(job: Job, number: int) -> None:
    forming = Generation.objects.filter(job=job, attempt=job.run.attempt, number=number, state=GenerationState.FORMING)
    forming.update(state=GenerationState.ABANDONED)


def enlist(job: Job, rank: Rank) -> None:
    """Give a rank its place if the active generation already names it."""
    generation = Generation.objects.filter(job=job, attempt=job.run.attempt, state=GenerationState.ACTIVE).first()
    if generation is None or rank.state == RankState.EXITED:
        return
    for number, member in enumerate(generation.members):
        if member["member_id"] == rank.member_id:
            place = member["rank"] if member["rank"] is not None else number
            Rank.objects.filter(pk=rank.pk).update(state=RankState.RUNNING, rank=place, generation=generation.number)


def _run(job: Job, generation: Generation) -> None:
    target = job.run.target_slots or generation.world_size
    why = Why(Reason.STARTED, message("started", slots=generation.world_size, target=target), "executor")
    mark_running(job, why, generation=generation.number, slots=generation.world_size)


def _update_ranks(job: Job, generation: Generation) -> None:
    ranks = Rank.objects.filter(job=job, attempt=job.run.attempt)
    alive = ranks.exclude(state__in=(RankState.EXITED, RankState.LOST))
    members = [member["member_id"] for member in generation.members]
    # Whoever was in the generation before and is not in this one leaves now.
    alive.filter(state=RankState.RUNNING).exclude(member_id__in=members).update(state=RankState.STOPPING, rank=None)
    for rank in alive.filter(member_id__in=members):
        enlist(job, rank)


def _moment(unix_seconds: float) -> datetime:
    return datetime.fromtimestamp(unix_seconds, UTC)
