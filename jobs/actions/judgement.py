"""Gathers the facts about a job's ranks and carries out what `jobs.outcome` makes of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import transaction

from jobs.actions.claims import open_claims
from jobs.actions.ending import LIVE_RANKS, settle
from jobs.actions.transition import lock_job
from jobs.gangs import has_saved_since, is_resumable
from jobs.models import Generation, Job, Journal, Rank
from jobs.outcome import Facts, RankEnd, judge
from jobs.states import HOLDING, GenerationState, JobState

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
    return f"{job.pk}.{job.incarnation}.metrics"


def _facts(job: Job) -> Facts:
    claims = open_claims(job)
    ranks = Rank.objects.filter(job=job, incarnation=job.incarnation).order_by("id")
    newest = {(rank.host, rank.slot): rank for rank in ranks}
    kept = [(claim.slot.host.name, claim.slot.index) for claim in claims if claim.vacating_at is None]
    if not job.elastic and job.state == JobState.PREEMPTING:
        kept = list(newest)  # all of its slots are being given back, and how its ranks took it is what matters
    return Facts(
        state=JobState(job.state),
        completed=job.completed_incarnation == job.incarnation,
        live=sum(rank.state in LIVE_RANKS for rank in ranks),
        ends=tuple(_end(newest[place]) for place in kept if place in newest and newest[place].state not in LIVE_RANKS),
        unstarted=sum(place not in newest for place in kept),
        stepped=_made_progress(job, ranks),
        fruitless_starts=job.fruitless_starts,
        open_claims=len(claims),
        lost=_is_lost(job, {rank.wid for rank in ranks if rank.state in LIVE_RANKS}),
        halting=job.halt_until is not None,
        after_stop=JobState(job.after_stop or JobState.PENDING),
        gang=not job.elastic,
        resumable=not job.elastic and is_resumable(job),
    )


def _made_progress(job: Job, ranks: Iterable[Rank]) -> bool:
    """A step of a session; of a script that has none, a file in its CHECKPOINT_DIR."""
    if Journal.objects.filter(name=metrics_journal(job), number__gt=0).exists():
        return True
    return not job.elastic and has_saved_since(job, min((rank.started_at for rank in ranks), default=0.0))


def _is_lost(job: Job, live: set[str]) -> bool:
    """No generation goes on after the last one, and none of its members runs any more."""
    formed = Generation.objects.filter(job=job, incarnation=job.incarnation, active_at__isnull=False)
    last = formed.order_by("-number").first()
    if last is None or last.state != GenerationState.ENDED:
        return False
    return not any(member["wid"] in live for member in last.members)


def _end(rank: Rank) -> RankEnd:
    seen: dict[str, Any] = rank.exit
    return RankEnd(
        rank.host,
        seen.get("code"),
        seen.get("signal"),
        seen.get("error"),
        stopped=bool(seen.get("stopped")),
        at=seen.get("at") or 0.0,
    )
