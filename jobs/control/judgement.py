"""Verdicts on jobs: gathers the facts for `jobs.control.outcome` and carries out its verdict.

For the other modules of jobs.control; call it after anything that may end a job.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import transaction

from jobs.control.claims import open_claims
from jobs.control.ending import LIVE_RANKS, settle
from jobs.control.fixed_size import has_saved_since, is_resumable
from jobs.control.outcome import Facts, Failure, RankEnd, judge
from jobs.control.transition import lock_job
from jobs.files.validation_runs import validation_of
from jobs.models import Generation, Job, Journal, Rank
from jobs.states import HOLDING, AnyReason, GenerationState, JobState
from scheduling.plan import PlanReason

__all__ = ["judge_job", "metrics_journal"]


@transaction.atomic
def judge_job(job_id: int) -> None:
    """Let the job end, or go back into the queue, if that is what its ranks' ends mean. May be called at any time."""
    job = lock_job(job_id)
    if job.state not in HOLDING:
        return
    verdict = judge(_facts(job))
    if verdict is not None:
        settle(job, verdict)


def metrics_journal(job: Job) -> str:
    return f"{job.pk}.{job.run.attempt}.metrics"


def _facts(job: Job) -> Facts:
    claims = open_claims(job)
    ranks = Rank.objects.filter(job=job, attempt=job.run.attempt).order_by("id")
    live = {rank.member_id for rank in ranks if rank.state in LIVE_RANKS}
    newest = {(rank.host, rank.slot): rank for rank in ranks}
    kept = [(claim.slot.host.name, claim.slot.index) for claim in claims if claim.vacating_at is None]
    if not job.elastic and job.state == JobState.PREEMPTING:
        kept = list(newest)  # all of its slots are being given back, and how its ranks took it is what matters
    ended = [newest[place] for place in kept if place in newest and newest[place].state not in LIVE_RANKS]
    last = _last_generation(job)
    lost = last is not None and last.state == GenerationState.ENDED and not live & _members(last)
    completed = job.run.completed_attempt == job.run.attempt
    if last is not None and (completed or (lost and live)):
        # Others never had the state, or the training got past their ends.
        ended = [rank for rank in ended if rank.member_id in _members(last)]
    # A run that validates begins anew each time: what it had measured brings it no further.
    trains = validation_of(job) is None
    step = max([job.run.step, *(step for rank in ended if (step := _step_of(rank)))]) if trains else 0
    return Facts(
        state=JobState(job.state),
        completed=completed,
        live=len(live),
        ends=tuple(_end(rank.host, rank.exit) for rank in ended),
        unstarted=sum(place not in newest for place in kept),
        stepped=trains and _made_progress(job, ranks),
        fruitless_starts=job.run.fruitless_starts,
        open_claims=len(claims),
        lost=lost,
        trains=last is not None and last.state == GenerationState.ACTIVE,
        min_slots=job.min_slots,
        step=step,
        previous=Failure(**job.run.failure) if job.run.failure else None,
        given_up=_given_up(job),
        halting=job.run.halt_until is not None,
        after_stop=JobState(job.run.after_stop or JobState.PENDING),
        gang=not job.elastic,
        resumable=not job.elastic and is_resumable(job),
        stopped_for=_stopped_for(job),
    )


def _stopped_for(job: Job) -> AnyReason:
    is_reclaimed = job.reason_code == PlanReason.RECLAIMED_BY_OWNER
    return PlanReason.RECLAIMED_BY_OWNER if is_reclaimed else PlanReason.PREEMPTED_BY_PRIORITY


def _made_progress(job: Job, ranks: Iterable[Rank]) -> bool:
    """A step of a session; of a script that has none, a file in its CHECKPOINT_DIR."""
    if Journal.objects.filter(name=metrics_journal(job), number__gt=0).exists():
        return True
    return not job.elastic and has_saved_since(job, min((rank.started_at for rank in ranks), default=0.0))


def _last_generation(job: Job) -> Generation | None:
    """The newest that has begun. When it has ended, nobody is left who has the training's state."""
    formed = Generation.objects.filter(job=job, attempt=job.run.attempt, active_at__isnull=False)
    return formed.order_by("-number").first()


def _members(generation: Generation) -> set[str]:
    return {member["member_id"] for member in generation.members}


def _given_up(job: Job) -> RankEnd | None:
    if job.run.given_up.get("attempt") != job.run.attempt:
        return None
    return _end(job.run.given_up["host"], job.run.given_up)


def _end(host: str, seen: dict[str, Any]) -> RankEnd:
    return RankEnd(
        host,
        seen.get("code"),
        seen.get("signal"),
        seen.get("error"),
        seen.get("by_script"),
        stopped=bool(seen.get("stopped")),
        at=seen.get("at") or 0.0,
    )


def _step_of(rank: Rank) -> int | None:
    """Steps completed when its script failed, as it wrote down itself."""
    step = (rank.exit.get("error") or {}).get("step")
    return step if isinstance(step, int) else None
