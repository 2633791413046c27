"""Generations of a job, as reported by its coordinator, and the resulting series of world sizes."""

from collections.abc import Set
from datetime import UTC, datetime

from django.db import transaction
from tidepool.protocol import GenerationActive, GenerationPlanned, to_json

from core import live
from jobs.control.transition import Why, change, publish_slots, record, transition
from jobs.messages import message
from jobs.models import AllocationPoint, Generation, Job, Rank, SlotClaim
from jobs.queries.serializers import AllocationOutput, as_json
from jobs.states import HOLDING, LIVE_RANKS, GenerationState, JobState, RankState, Reason, reason_of
from jobs.topics import job_topic
from models_registry.models import RegisteredModelVersion
from workers.topics import CLUSTER

__all__ = ["abandon", "activate", "add_point", "close_generations", "end_generations", "enlist", "plan"]


@transaction.atomic
def plan(job: Job, planned: GenerationPlanned) -> None:
    """Store that the coordinator forms a generation, and abandon one that was forming before."""
    job.generations.filter(state=GenerationState.FORMING).update(state=GenerationState.ABANDONED)
    job.generations.get_or_create(
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
            "planned_at": datetime.fromtimestamp(planned.at, UTC),
        },
    )


@transaction.atomic
def activate(job: Job, active: GenerationActive) -> None:
    """Store that the ranks train in this generation from now on. Its size, not the target, is the job's size."""
    at = datetime.fromtimestamp(active.at, UTC)
    job.generations.filter(state=GenerationState.ACTIVE).update(state=GenerationState.SUPERSEDED)
    generation, _ = job.generations.update_or_create(
        attempt=job.run.attempt,
        number=active.generation,
        defaults={
            "state": GenerationState.ACTIVE if job.state in HOLDING else GenerationState.ENDED,
            "world_size": active.world_size,
            "members": [to_json(member) for member in active.members],
            "target_revision": active.target_revision,
            "active_at": at,
        },
    )
    if job.state in HOLDING:
        _update_ranks(job, generation)
        _update_claims(job, {(member.host, member.slot) for member in active.members}, at)
        _run(job, generation)
    _tell_that_size_shows(job, generation)
    add_point(
        job,
        _cause_of(job, generation, lost_ranks=active.cause == "failure"),
        at=at,
        slots=generation.world_size,
        generation=generation.number,
        pause_ms=active.pause_ms,
    )


def _tell_that_size_shows(job: Job, generation: Generation) -> None:
    """Record, once, at the first resize, that the results depend on the number of GPUs by more than rounding."""
    layers = job.model.declared.layers
    if not layers or job.is_bitwise or job.model.engine != RegisteredModelVersion.Engine.ELASTIC:
        return
    former = AllocationPoint.objects.filter(job=job, slots__gt=0).order_by("at", "pk").last()
    if former is None or former.slots == generation.world_size or job.events.filter(reason=Reason.SIZE_SHOWS).exists():
        return
    sizes = {"before": former.slots, "slots": generation.world_size}
    record(job, Why(Reason.SIZE_SHOWS, message("size_shows", layers=layers, **sizes), "executor"))


@transaction.atomic
def abandon(job: Job, number: int) -> None:
    forming = job.generations.filter(attempt=job.run.attempt, number=number, state=GenerationState.FORMING)
    forming.update(state=GenerationState.ABANDONED)


def enlist(job: Job, rank: Rank) -> None:
    """Store the rank's number if the active generation already includes it."""
    generation = job.generations.filter(attempt=job.run.attempt, state=GenerationState.ACTIVE).first()
    if generation is None or rank.state == RankState.EXITED:
        return
    for number, member in enumerate(generation.members):
        if member["member_id"] == rank.member_id:
            place = member["rank"] if member["rank"] is not None else number
            Rank.objects.filter(pk=rank.pk).update(state=RankState.RUNNING, rank=place, generation=generation.number)
            return  # a process that holds further slots is their member, too


def _run(job: Job, generation: Generation) -> None:
    number, slots = generation.number, generation.world_size
    if job.state != JobState.STARTING:
        change(job, generation=number, slots=slots)
        return
    params = message("started", slots=slots, target=job.run.target_slots or slots)
    why = Why(Reason.STARTED, params, "executor")
    transition(job, JobState.RUNNING, why, explains=False, generation=number, slots=slots)


def _update_ranks(job: Job, generation: Generation) -> None:
    alive = Rank.objects.filter(job=job, attempt=job.run.attempt, state__in=LIVE_RANKS)
    members = [member["member_id"] for member in generation.members]
    # Ranks of the former generation that are not in this one leave now.
    alive.filter(state=RankState.RUNNING).exclude(member_id__in=members).update(state=RankState.STOPPING, rank=None)
    for rank in alive.filter(member_id__in=members):
        enlist(job, rank)


def _update_claims(job: Job, members: Set[tuple[str, int]], at: datetime) -> None:
    """Mark the claims of these (host, slot) as training from `at` on, and the job's other claims as not training."""
    claims = list(SlotClaim.objects.open().filter(job=job).select_related("slot__host"))
    training = {claim for claim in claims if (claim.slot.host.name, claim.slot.index) in members}
    begun = [claim.pk for claim in training if claim.trains_from is None]
    going_on = [claim.pk for claim in training if claim.trained_until is not None]
    left = [claim.pk for claim in claims if claim not in training and _trains(claim)]
    SlotClaim.objects.filter(pk__in=begun).update(trains_from=at)
    SlotClaim.objects.filter(pk__in=going_on).update(trained_until=None)
    SlotClaim.objects.filter(pk__in=left).update(trained_until=at)
    if begun or going_on or left:
        publish_slots({str(claim.slot): {"training": claim in training} for claim in claims})


def _trains(claim: SlotClaim) -> bool:
    return claim.trains_from is not None and claim.trained_until is None


@transaction.atomic
def add_point(
    job: Job, why: Why, *, at: datetime, slots: int, generation: int = 0, pause_ms: float | None = None
) -> None:
    """Record that the job's world size is `slots` from `at` on. Idempotent."""
    point, is_new = AllocationPoint.objects.get_or_create(
        job=job,
        attempt=job.run.attempt,
        generation=generation,
        slots=slots,
        defaults={"at": at, "reason_code": why.reason, "reason_params": why.params, "pause_ms": pause_ms},
    )
    if not is_new:
        return
    shown = as_json(AllocationOutput, point)
    live.publish(job_topic(job.pk), "append", {"allocation": [{"job": job.pk, **shown}]})
    # Every user sees the cluster topic, and a sentence may name other users' jobs.
    anonymous = {**shown, "reason": {**shown["reason"], "text": ""}}
    live.publish(CLUSTER, "append", {"allocation": [{"job": job.pk, **anonymous}]})


@transaction.atomic
def close_generations(job: Job) -> None:
    """End the generations of the current attempt without a successor."""
    job.generations.filter(state=GenerationState.ACTIVE).update(state=GenerationState.ENDED)
    job.generations.filter(state=GenerationState.FORMING).update(state=GenerationState.ABANDONED)


@transaction.atomic
def end_generations(job: Job, why: Why, at: datetime) -> None:
    """Record that the job stops training: its world size is 0 from `at` on."""
    close_generations(job)
    _update_claims(job, frozenset(), at)
    if job.run.slots:
        add_point(job, why, at=at, slots=0, generation=job.run.generation)


def _cause_of(job: Job, generation: Generation, *, lost_ranks: bool) -> Why:
    """Return why a generation was formed: the decision behind its target, or the loss of a rank."""
    if lost_ranks:
        return Why(Reason.RANK_LOST, message("rank_lost"), "executor")
    event = job.events.filter(detail__target_revision=generation.target_revision).order_by("seq").first()
    if event is None:
        return Why(reason_of(job.reason_code), job.reason_params, "scheduler")
    return Why(reason_of(event.reason), event.detail, event.actor)
