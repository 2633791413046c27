"""Ends of jobs and returns to the queue. Called by jobs.control, by actions of owners, and when the stack starts."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from django.db import transaction
from django.utils import timezone

from jobs.control.allocation import end_generations
from jobs.control.claims import release_claims
from jobs.control.fixed_size import is_resumable
from jobs.control.lifecycle import stop_ranks
from jobs.control.outcome import Verdict
from jobs.control.transition import Why, transition
from jobs.control.wake import wake_scheduler
from jobs.files.validation_runs import keep_result
from jobs.messages import message
from jobs.models import Job, Rank, SlotClaim
from jobs.states import JobState, RankState, Reason, reason_of
from workers.actions import write_host_states
from workers.models import Host

__all__ = [
    "LIVE_RANKS",
    "finish_cancelled",
    "finish_failed",
    "finish_succeeded",
    "requeue",
    "requeue_interrupted",
    "settle",
]

LIVE_RANKS = (RankState.LAUNCHING, RankState.JOINING, RankState.READY, RankState.RUNNING, RankState.STOPPING)
_INTERRUPTED = (JobState.STARTING, JobState.RUNNING, JobState.PREEMPTING, JobState.CANCELLING)


@transaction.atomic
def finish_succeeded(job: Job, why: Why) -> None:
    keep_result(job)
    _finish(job, JobState.SUCCEEDED, why, progress=1.0)


@transaction.atomic
def finish_failed(job: Job, why: Why, error: dict[str, Any]) -> None:
    _finish(job, JobState.FAILED, why, error=error)


@transaction.atomic
def finish_cancelled(job: Job, why: Why) -> None:
    _finish(job, JobState.CANCELLED, why)


@transaction.atomic
def requeue(job: Job, why: Why, **changes: Any) -> None:
    """Every rank was lost: the job waits for slots and continues under its next attempt."""
    _leave(job, JobState.PENDING, why, **changes)
    stop_ranks(job)
    wake_scheduler()


@transaction.atomic
def settle(job: Job, verdict: Verdict, actor: str = "executor") -> None:
    """Carry out a verdict about a job that holds slots."""
    why = Why(verdict.reason, verdict.params, actor)
    match verdict.state:
        case JobState.SUCCEEDED:
            finish_succeeded(job, why)
        case JobState.FAILED:
            finish_failed(job, why, verdict.error)
        case JobState.CANCELLED:
            finish_cancelled(job, why)
        case JobState.PENDING if job.state != JobState.PREEMPTING:
            failure = {"failure": asdict(verdict.failure), "error": verdict.error} if verdict.failure else {}
            requeue(job, why, fruitless_starts=verdict.fruitless_starts, **failure)
        case _:
            _leave_preempting(job, verdict.state, verdict.params)


@transaction.atomic
def requeue_interrupted(reason: Reason = Reason.STACK_STOPPED) -> int:
    """Every process of every job is gone, because the whole stack stopped. Returns how many jobs wait again.

    Hosts offer nothing until their executors report.
    """
    why = Why(reason, message("stack_stopped"), "system")
    jobs = (
        Job.objects.select_related("run").select_for_update(of=("self",)).filter(state__in=_INTERRUPTED).order_by("pk")
    )
    waiting = [_interrupt(job, why) for job in jobs]
    release_claims(SlotClaim.objects.filter(released_at__isnull=True).select_related("slot__host"))
    Rank.objects.filter(state__in=LIVE_RANKS).update(state=RankState.LOST, rank=None)
    _hosts_offline()
    return sum(waiting)


def _interrupt(job: Job, why: Why) -> bool:
    """What a job becomes now that all its processes are gone; True if it waits for slots again."""
    if job.state == JobState.CANCELLING:
        finish_cancelled(job, Why(Reason.CANCELLED_BY_USER, message("cancelled"), why.actor))
        return False
    if job.state == JobState.PREEMPTING and job.run.after_stop == JobState.SUSPENDED:
        _leave_preempting(job, JobState.SUSPENDED, message("stack_stopped_held_back"))
        return False
    if not job.elastic:
        why = replace(why, params=message("stack_stopped_gang", resumable=is_resumable(job)))
    _leave(job, JobState.PENDING, why)
    return True


def _hosts_offline() -> None:
    known = Host.objects.filter(state__in=(Host.State.ONLINE, Host.State.LOST))
    write_host_states(known, Host.State.OFFLINE)


def _finish(job: Job, new: JobState, why: Why, **changes: Any) -> None:
    held_slots = job.state in _INTERRUPTED
    _leave(job, new, why, finished_at=timezone.now(), **changes)
    if held_slots:
        stop_ranks(job)
    wake_scheduler()


def _leave_preempting(job: Job, new: JobState, params: dict[str, Any]) -> None:
    """The reason stays what it was stopped for, with another sentence."""
    _leave(job, new, Why(reason_of(job.reason_code), {**job.reason_params, **params}, "executor"))
    wake_scheduler()


def _leave(job: Job, new: JobState, why: Why, **changes: Any) -> None:
    end_generations(job, why, timezone.now())
    transition(job, new, why, slots=0, target_slots=0, after_stop="", halt_until=None, **changes)
