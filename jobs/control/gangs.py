"""Fixed-size scripts whose ranks do not end together or never form a process group.

From outside, a rank that hangs in its destructors looks like one that works. But ranks of a process group end together:
if one has exited with 0 and another stays, the owner is notified, and the remaining ranks are ended after a deadline
that the owner may extend. Ranks that never form a group are copies of one script, each of which may take its own time:
the owner is notified, and nothing is ended.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from django.conf import settings
from django.db import transaction
from tidepool.command_runner import COMMAND_FILE

from jobs.control.job_end import finish
from jobs.control.transition import Why, lock_job, record
from jobs.messages import message, text_of
from jobs.models import Job, JobEvent, Rank
from jobs.states import LIVE_RANKS, JobState, RankState, Reason
from models_registry.models import RegisteredModelVersion

__all__ = ["GangFacts", "GangNotice", "gang_notice", "put_off", "seen_in", "watch_gangs"]

Seen = Literal["copies", "ranks_stay", "ranks_overdue"]

#: Seconds from the start within which a script forms its process group.
_GROUP_SECONDS = 60.0
#: Largest normal difference, in seconds, between the exits of a group's ranks.
_SKEW_SECONDS = 10.0


@dataclass(frozen=True)
class GangFacts:
    """Facts about the current attempt."""

    live: int
    #: Whether any rank has reported a process group.
    grouped: bool
    #: Times of the exits with code 0, in Unix seconds.
    ended_at: tuple[float, ...]
    #: Start time of the last rank, in Unix seconds.
    started_at: float
    #: Deadline that the owner has set for the remaining ranks, in Unix seconds; 0.0: none.
    may_stay_until: float = 0.0

    def stay_until(self, patience_seconds: float) -> float | None:
        """Return the deadline of the remaining ranks in Unix seconds; None if no rank stays after others' exit."""
        if not (self.live and self.grouped and self.ended_at):
            return None
        return max(min(self.ended_at) + patience_seconds, self.may_stay_until)


@dataclass(frozen=True)
class GangNotice:
    text: str = ""
    #: Time at which the remaining ranks are ended; None: no deadline.
    ends_at: datetime | None = None


def seen_in(facts: GangFacts, now: float, patience_seconds: float) -> Seen | None:
    if not facts.live:
        return None
    if facts.grouped:
        until = facts.stay_until(patience_seconds)
        if until is None or now - min(facts.ended_at) < _SKEW_SECONDS:
            return None
        return "ranks_overdue" if now >= until else "ranks_stay"
    return "copies" if now - facts.started_at >= _GROUP_SECONDS else None


def watch_gangs(now: datetime) -> None:
    """Record an event for each finding, once per attempt, and end overdue jobs. Call it about once per second."""
    several = Job.objects.filter(state=JobState.RUNNING, finished_at=None, max_slots__gt=1)
    plain = several.exclude(model__engine=RegisteredModelVersion.Engine.ELASTIC)
    # Process groups of commands cannot be observed.
    for job in plain.exclude(model__entry_point=COMMAND_FILE).select_related("run", "model").order_by("pk"):
        if job.engine != RegisteredModelVersion.Engine.FIXED:
            continue
        seen = seen_in(_facts(job), now.timestamp(), settings.TIDEPOOL_STRAGGLER_SECONDS)
        if seen == "ranks_overdue" or (seen is not None and _notice_of(job, seen) is None):
            _act(job.pk, now)


def gang_notice(job: Job) -> GangNotice:
    """Return the notice about a running job's ranks."""
    if job.elastic or job.state != JobState.RUNNING:
        return GangNotice()
    if event := _notice_of(job, "ranks_may_stay") or _notice_of(job, "ranks_stay"):
        until = _facts(job).stay_until(settings.TIDEPOOL_STRAGGLER_SECONDS)
        return GangNotice(event.text, None if until is None else datetime.fromtimestamp(until, UTC))
    event = _notice_of(job, "copies")
    return GangNotice(event.text if event else "")


def put_off(job: Job, span: timedelta, now: datetime, actor: str) -> bool:
    """Extend the deadline of remaining ranks to `span` from now; False if none remain. The caller has locked `job`."""
    facts = _facts(job)
    present = facts.stay_until(settings.TIDEPOOL_STRAGGLER_SECONDS)
    if present is None:
        return False
    until, seconds = (now + span).timestamp(), span.total_seconds()
    if until > present:
        params = message("ranks_may_stay", by=actor, attempt=job.run.attempt, seconds=seconds, until=until)
        record(job, Why(Reason.NO_PROGRESS, params, actor))
    return True


@transaction.atomic
def _act(job_id: int, now: datetime) -> None:
    job = lock_job(job_id)
    facts = _facts(job)
    seen = seen_in(facts, now.timestamp(), settings.TIDEPOOL_STRAGGLER_SECONDS)
    if job.state != JobState.RUNNING or seen is None:
        return
    figures: dict[str, Any] = {"attempt": job.run.attempt, "live": facts.live, "ended": len(facts.ended_at)}
    until = facts.stay_until(settings.TIDEPOOL_STRAGGLER_SECONDS)
    minutes = 0.0 if until is None else round((until - min(facts.ended_at)) / 60, 1)
    params = message(seen, **figures, minutes=minutes)
    why = Why(Reason.NO_PROGRESS, params, "scheduler")
    if seen == "ranks_overdue":
        error = {"kind": "RanksStayed", "message": text_of(params), "traceback": ""}
        finish([job], JobState.FAILED, why, error=error)
    elif _notice_of(job, seen) is None:
        record(job, why)


def _notice_of(job: Job, key: str) -> JobEvent | None:
    told = JobEvent.objects.filter(job=job, reason=Reason.NO_PROGRESS)
    return told.filter(detail__message=key, detail__attempt=job.run.attempt).order_by("seq").last()


def _facts(job: Job) -> GangFacts:
    ranks = list(Rank.objects.filter(job=job, attempt=job.run.attempt))
    ended = [rank.exit for rank in ranks if rank.state == RankState.EXITED and rank.exit.get("code") == 0]
    asked = _notice_of(job, "ranks_may_stay") if ended else None
    return GangFacts(
        live=sum(rank.state in LIVE_RANKS for rank in ranks),
        grouped=any(rank.grouped for rank in ranks),
        ended_at=tuple(float(seen["at"]) for seen in ended if seen.get("at")),
        started_at=max((rank.started_at for rank in ranks), default=0.0),
        may_stay_until=asked.detail["until"] if asked else 0.0,
    )
