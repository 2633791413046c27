"""Fixed-size scripts whose ranks do not act as one: some stay after others have ended, or they never form a group.

From outside, a rank that hangs in its destructors looks like one that works. But ranks of a process group end together:
where one has ended with 0 and another stays, the owner is told, and the rest is ended after a deadline. Ranks that
never form a group are copies of one script, each of which may take its own time: they are only told about.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from django.conf import settings
from django.db import transaction

from jobs.control.ending import finish
from jobs.control.transition import Why, lock_job, record
from jobs.messages import message, text_of
from jobs.models import Job, JobEvent, Rank
from jobs.states import LIVE_RANKS, JobState, RankState, Reason
from models_registry.models import RegisteredModelVersion

__all__ = ["GangFacts", "gang_notice", "seen_in", "watch_gangs"]

Seen = Literal["copies", "ranks_stay", "ranks_overdue"]

#: A script that forms a group has done so after this long.
_GROUP_SECONDS = 60.0
#: Ranks of a group end so far apart, at most, without anything being wrong.
_SKEW_SECONDS = 10.0


@dataclass(frozen=True)
class GangFacts:
    """Of the present attempt."""

    live: int
    #: Some rank has told of a process group.
    grouped: bool
    #: Unix seconds of the ends with exit code 0.
    ended_at: tuple[float, ...]
    #: Of its last rank.
    started_at: float


def seen_in(facts: GangFacts, now: float, patience_seconds: float) -> Seen | None:
    if not facts.live:
        return None
    if facts.grouped:
        stays = now - min(facts.ended_at, default=now)
        return "ranks_overdue" if stays >= patience_seconds else "ranks_stay" if stays >= _SKEW_SECONDS else None
    return "copies" if now - facts.started_at >= _GROUP_SECONDS else None


def watch_gangs(now: datetime) -> None:
    """Tell of what is seen, once for each attempt, and end what is overdue. Call it about once per second."""
    fixed = Job.objects.filter(
        state=JobState.RUNNING, finished_at=None, max_slots__gt=1, model__engine=RegisteredModelVersion.Engine.FIXED
    )
    for job in fixed.select_related("run").order_by("pk"):
        seen = seen_in(_facts(job), now.timestamp(), settings.TIDEPOOL_STRAGGLER_SECONDS)
        if seen == "ranks_overdue" or (seen is not None and _notice_of(job, seen) is None):
            _act(job.pk, now)


def gang_notice(job: Job) -> str:
    """What is to be said about its ranks while it runs; "" for nothing."""
    if job.elastic or job.state != JobState.RUNNING:
        return ""
    notices = filter(None, (_notice_of(job, key) for key in ("ranks_stay", "copies")))
    return next((event.text for event in notices), "")


@transaction.atomic
def _act(job_id: int, now: datetime) -> None:
    job = lock_job(job_id)
    facts = _facts(job)
    seen = seen_in(facts, now.timestamp(), settings.TIDEPOOL_STRAGGLER_SECONDS)
    if job.state != JobState.RUNNING or seen is None:
        return
    figures: dict[str, Any] = {"attempt": job.run.attempt, "live": facts.live, "ended": len(facts.ended_at)}
    params = message(seen, **figures, minutes=round(settings.TIDEPOOL_STRAGGLER_SECONDS / 60, 1))
    why = Why(Reason.NO_PROGRESS, params, "scheduler")
    if seen == "ranks_overdue":
        error = {"kind": "RanksStayed", "message": text_of(params), "traceback": ""}
        finish(job, JobState.FAILED, why, error=error)
    elif _notice_of(job, seen) is None:
        record(job, why)


def _notice_of(job: Job, key: str) -> JobEvent | None:
    told = JobEvent.objects.filter(job=job, reason=Reason.NO_PROGRESS)
    return told.filter(detail__message=key, detail__attempt=job.run.attempt).first()


def _facts(job: Job) -> GangFacts:
    ranks = list(Rank.objects.filter(job=job, attempt=job.run.attempt))
    ended = [rank.exit for rank in ranks if rank.state == RankState.EXITED and rank.exit.get("code") == 0]
    return GangFacts(
        live=sum(rank.state in LIVE_RANKS for rank in ranks),
        grouped=any(rank.grouped for rank in ranks),
        ended_at=tuple(float(seen["at"]) for seen in ended if seen.get("at")),
        started_at=max((rank.started_at for rank in ranks), default=0.0),
    )
