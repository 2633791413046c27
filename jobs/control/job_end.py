"""Ends of jobs and their return to the queue.

`judge_job` gathers the facts for `jobs.control.outcome` and carries out its verdict: call it after anything that may
end a job. Callers are jobs.control, actions of owners, and the start and stop of the stack.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from jobs.control.checkpoints import continuation, has_saved_since
from jobs.control.dispatch import wake_scheduler
from jobs.control.generations import end_generations
from jobs.control.lifecycle import open_claims, preempt, raise_revisions, release_claims, stop_ranks
from jobs.control.observed_curves import drop_unpassed
from jobs.control.outcome import UNBUILT, Facts, Failure, RankEnd, judge
from jobs.control.transition import Why, change, lock_job, record, transition_all
from jobs.files.function_values import written_digest
from jobs.files.validation_runs import keep_result, validation_of
from jobs.messages import message
from jobs.models import Checkpoint, Generation, Job, Journal, Rank, SlotClaim
from jobs.states import (
    HOLDING,
    LIVE_RANKS,
    TRAINING,
    GenerationState,
    JobState,
    RankState,
    Reason,
    reason_of,
)
from models_registry.models import RegisteredModelVersion
from workers.actions import write_host_states
from workers.models import Host
from workers.queries import clock_corrections

__all__ = ["end_halt", "finish", "give_up_halts", "judge_job", "requeue", "requeue_interrupted", "stop_trainings"]


@transaction.atomic
def judge_job(job_id: int) -> None:
    """End or requeue the job if the exits of its ranks say so. May be called at any time."""
    job = lock_job(job_id)
    if job.state not in HOLDING:
        return
    verdict = judge(_facts(job))
    if verdict is None:
        return
    why = Why(verdict.reason, verdict.params, "executor")
    match verdict.state:
        case JobState.SUCCEEDED:
            is_done = verdict.params["message"] != "no_step"
            finish([job], verdict.state, why, **({"progress": 1.0} if is_done else {}))
        case JobState.FAILED:
            finish([job], verdict.state, why, error=verdict.error)
        case JobState.CANCELLED:
            finish([job], verdict.state, why)
        case JobState.PENDING if job.state != JobState.PREEMPTING:
            failure = {"failure": asdict(verdict.failure), "error": verdict.error} if verdict.failure else {}
            requeue(job, why, fruitless_starts=verdict.fruitless_starts, **failure)
        case _:
            _leave_preempting(job, verdict.state, verdict.params)


def _facts(job: Job) -> Facts:
    claims = open_claims(job)
    ranks = list(Rank.objects.filter(job=job, attempt=job.run.attempt).order_by("id"))
    live = {rank.member_id for rank in ranks if rank.state in LIVE_RANKS}
    newest = {(rank.host, rank.slot): rank for rank in ranks}
    kept = [(claim.slot.host.name, claim.slot.index) for claim in claims if claim.vacating_at is None]
    if job.engine == RegisteredModelVersion.Engine.SINGLE:
        kept = sorted(kept)[:1]  # the slot that the only process was started in; it holds the others, too
    if not job.elastic and job.state == JobState.PREEMPTING:
        kept = list(newest)  # all slots are being given back; only the exits matter
    ended = [newest[place] for place in kept if place in newest and newest[place].state not in LIVE_RANKS]
    # Once the newest generation has ended, no rank has the training's state any more.
    begun = Generation.objects.filter(job=job, attempt=job.run.attempt, active_at__isnull=False)
    last = begun.order_by("-number").first()
    members = {member["member_id"] for member in last.members} if last else set()
    lost = last is not None and last.state == GenerationState.ENDED and not live & members
    completed = job.run.completed_attempt == job.run.attempt
    if last is not None and (completed or (lost and live)):
        # Other ranks never had the state, or the training continued after their exits.
        ended = [rank for rank in ended if rank.member_id in members]
    # A validation run starts over at each attempt: its measurements so far are no progress.
    trains = validation_of(job) is None
    # Steps parsed from a plain script's log are the script's own numbers: they do not count as progress.
    counts = trains and (job.elastic or _has_session_steps(job, ranks))
    step = max([job.run.step, *map(_step_of, ended)]) if counts else 0
    given_up = job.run.given_up
    is_unbuilt = (given_up.get("error") or {}).get("kind") in UNBUILT
    gave_up = _end(given_up["host"], given_up) if given_up.get("attempt") == job.run.attempt else None
    return Facts(
        state=JobState(job.state),
        completed=completed,
        live=len(live),
        ends=_ends(ended),
        unstarted=sum(place not in newest for place in kept),
        stepped=trains and _made_progress(job, ranks),
        fruitless_starts=job.run.fruitless_starts,
        open_claims=len(claims),
        lost=lost,
        trains=last is not None and last.state == GenerationState.ACTIVE,
        min_slots=job.min_slots,
        step=step,
        has_no_step=trains and job.elastic and not step,
        previous=Failure(**job.run.failure) if job.run.failure else None,
        given_up=None if is_unbuilt else gave_up,
        unbuilt=gave_up if is_unbuilt else None,
        halting=job.run.halt_until is not None,
        after_stop=JobState(job.run.after_stop or JobState.PENDING),
        gang=not job.elastic,
        **({} if job.elastic else continuation(job)),
        saved=Checkpoint.objects.filter(job=job).aggregate(step=Max("step"))["step"],
        stopped_for=reason_of(job.reason_code),
        stopped_with=job.reason_params,
    )


def _made_progress(job: Job, ranks: Collection[Rank]) -> bool:
    """Return whether a session completed a step; without a session, whether anything new was saved."""
    if _has_session_steps(job, ranks):
        return True
    corrections = clock_corrections(rank.host for rank in ranks)
    began = min((rank.started_at + corrections.get(rank.host, 0.0) for rank in ranks), default=0.0)
    return not job.elastic and has_saved_since(job, began)


def _has_session_steps(job: Job, ranks: Collection[Rank]) -> bool:
    if any(rank.exit.get("step") is not None for rank in ranks):
        return True  # may be known before the steps are stored
    return Journal.objects.filter(name=f"{job.pk}.{job.run.attempt}.metrics", number__gt=0).exists()


def _ends(ranks: Collection[Rank]) -> tuple[RankEnd, ...]:
    """Return the ends of ranks with their times corrected for the hosts' clocks."""
    corrections = clock_corrections(rank.host for rank in ranks)
    ends = (_end(rank.host, rank.exit) for rank in ranks)
    return tuple(replace(end, at=end.at + corrections.get(end.host, 0.0)) for end in ends)


def _end(host: str, seen: dict[str, Any]) -> RankEnd:
    names = ("code", "signal", "error", "by_script", "stopped", "at")
    return RankEnd(host, **{name: seen[name] for name in names if seen.get(name) is not None})


def _step_of(rank: Rank) -> int:
    """Return the number of completed steps: from the script's error or from the shim, whichever is higher."""
    told = (rank.exit.get("error") or {}).get("step"), rank.exit.get("step")
    return max([step for step in told if isinstance(step, int)], default=0)


@transaction.atomic
def finish(jobs: Sequence[Job], new: JobState, why: Why, **changes: Any) -> None:
    """Move the jobs to a terminal state and end their processes."""
    if new == JobState.SUCCEEDED:
        for job in jobs:
            keep_result(job)
            change(job, value_sha256=written_digest(job))
            drop_unpassed(job)
    held_slots = [job for job in jobs if job.state in HOLDING]
    _leave(jobs, new, why, finished_at=timezone.now(), **changes)
    stop_ranks(held_slots)
    wake_scheduler()


@transaction.atomic
def requeue(job: Job, why: Why, **changes: Any) -> None:
    """Queue a job whose ranks are all lost: it waits for slots and resumes in its next attempt."""
    _leave([job], JobState.PENDING, why, **changes)
    stop_ranks([job])
    wake_scheduler()


@transaction.atomic
def requeue_interrupted() -> int:
    """Queue or end all jobs after a stop of the whole stack, which ended every process. Returns the number queued.

    Hosts offer no slots until their executors report.
    """
    why = Why(Reason.STACK_STOPPED, message("stack_stopped"), "system")
    jobs = Job.objects.select_related("run").select_for_update(of=("self",)).filter(state__in=HOLDING).order_by("pk")
    waiting = [_interrupt(job, why) for job in jobs]
    release_claims(SlotClaim.objects.open().select_related("slot__host"))
    Rank.objects.filter(state__in=LIVE_RANKS).update(state=RankState.LOST, rank=None)
    write_host_states(Host.objects.filter(state__in=(Host.State.ONLINE, Host.State.LOST)), Host.State.OFFLINE)
    return sum(waiting)


def _interrupt(job: Job, why: Why) -> bool:
    """Queue or end a job whose processes are all gone; True if it waits for slots again."""
    if job.state == JobState.CANCELLING:
        finish([job], JobState.CANCELLED, Why(Reason.CANCELLED_BY_USER, message("cancelled"), why.actor))
        return False
    if job.state == JobState.PREEMPTING and job.run.after_stop == JobState.SUSPENDED:
        _leave_preempting(job, JobState.SUSPENDED, message("stack_stopped_held_back"))
        return False
    if not job.elastic:
        why = replace(why, params=message("stack_stopped_gang", **continuation(job)))
    _leave([job], JobState.PENDING, why)
    return True


def _leave_preempting(job: Job, new: JobState, params: dict[str, Any]) -> None:
    """Leave PREEMPTING with the reason of the stop and a new sentence."""
    _leave([job], new, Why(reason_of(job.reason_code), {**job.reason_params, **params}, "executor"))
    wake_scheduler()


def _leave(jobs: Sequence[Job], new: JobState, why: Why, **changes: Any) -> None:
    for job in jobs:
        if job.state in HOLDING:
            end_generations(job, why, timezone.now())
    transition_all(
        jobs,
        new,
        why,
        slots=0,
        target_slots=0,
        after_stop="",
        halt_until=None,
        ends_at=None,
        backfilled_for=None,
        over_quota=False,
        **changes,
    )


def end_halt(job: Job) -> None:
    """End the processes of an attempt that was stopping by itself: there is nothing left to wait for."""
    if job.run.halt_until is None:
        return
    change(job, halt_until=None)
    # A process may remain on any host where the attempt has held a slot.
    raise_revisions(job.claims.filter(attempt=job.run.attempt).values_list("slot__host", flat=True))


def give_up_halts(now: datetime) -> None:
    """End the ranks of jobs that missed their deadline for stopping by themselves. Call it about once per second."""
    late = Job.objects.filter(state=JobState.PREEMPTING, run__halt_until__lte=now)
    for job_id in late.order_by("pk").values_list("pk", flat=True):
        with transaction.atomic():
            job = lock_job(job_id)
            if job.state != JobState.PREEMPTING or job.run.halt_until is None or job.run.halt_until > now:
                continue
            newest = job.checkpoints.usable().first()
            params = message("halt_timeout", step=newest.step if newest else None)
            record(job, Why(Reason.HALT_TIMEOUT, params, "scheduler"))
            end_halt(job)
            judge_job(job.pk)


def stop_trainings(within_seconds: float) -> int:
    """Ask all trainings to stop before the stack does, and queue them. Returns the number of trainings.

    No scheduler may lead: the leader would start them again.
    """
    asked = 0
    for job_id in Job.objects.filter(state__in=TRAINING).order_by("pk").values_list("pk", flat=True):
        with transaction.atomic():
            job = lock_job(job_id)
            if job.state in TRAINING:
                why = Why(Reason.STACK_STOPPED, message("stack_stopping"), "system")
                preempt(job, why, within_seconds=within_seconds)
                asked += 1
    return asked
