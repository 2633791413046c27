"""Trainings that hold GPUs and use none: their owner is warned, and where the group says so, the GPUs are freed.

A training is idle if it makes no step, and none of its GPUs is used (see `jobs.queries.gpu_status.is_idle`). While it
starts, within TIDEPOOL_LAUNCH_SECONDS of getting its GPUs and before its first step, it is not.

After `idle_after_seconds` of its group: an event, and a notice on its page with "Keep for an hour". Where the group
reclaims idle GPUs: after `idle_grace_seconds` an elastic training shrinks live to its minimum, and after that time
again it stops with a checkpoint and is suspended, as one of fixed size is at once.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from jobs.control.dispatch import wake_scheduler
from jobs.control.lifecycle import HALT_SECONDS, preempt
from jobs.control.transition import Why, change, lock_job, record
from jobs.messages import message
from jobs.models import Job, SlotClaim
from jobs.states import JobState, Reason
from workers.lateness import is_behind, reports_delay

__all__ = ["KEEPS", "KEEP_SECONDS", "Idleness", "idle_step", "keep", "watch_idle"]

#: Time for which a training keeps idle GPUs on request, and how often in an attempt.
KEEP_SECONDS = 3600
KEEPS = 3
#: An older reading says nothing of now.
_FRESH = timedelta(minutes=2)

IdleStep = Literal["none", "clear", "warn", "shrink", "halt"]


@dataclass(frozen=True)
class Idleness:
    """A running training, and what its group says about idle GPUs. Times are those of the control plane."""

    #: Time since which it is idle; None: it is not.
    since: datetime | None
    #: Times at which it was warned and shrunk; None: it was not.
    warned_at: datetime | None
    shrunk_at: datetime | None
    #: Time until which its owner keeps the GPUs.
    kept_until: datetime | None
    #: Seconds of the group; `after` 0: nobody is warned.
    after: int
    grace: int
    reclaims: bool
    #: Whether it can shrink.
    can_shrink: bool


def idle_step(seen: Idleness, now: datetime) -> IdleStep:
    """Return what is to be done about a training. Pure."""
    is_kept = seen.kept_until is not None and now < seen.kept_until
    is_due = seen.after > 0 and seen.since is not None and now - seen.since >= timedelta(seconds=seen.after)
    if not is_due or is_kept:
        return "none" if seen.warned_at is None and seen.shrunk_at is None else "clear"
    if seen.warned_at is None:
        return "warn"
    grace = timedelta(seconds=seen.grace)
    if not seen.reclaims or now - (seen.shrunk_at or seen.warned_at) < grace:
        return "none"
    return "shrink" if seen.can_shrink and seen.shrunk_at is None else "halt"


def watch_idle(now: datetime) -> None:
    """Judge all running trainings. Call it every few seconds."""
    delay = reports_delay(now)
    if delay is not None and is_behind(delay):
        return
    running = Job.objects.filter(state=JobState.RUNNING).select_related("instance_group", "run")
    since = _idle_since(running, now)
    for job in running.order_by("pk"):
        if idle_step(_seen(job, since.get(job.pk)), now) != "none":
            _act(job.pk, since.get(job.pk), now)


def _idle_since(jobs: Iterable[Job], now: datetime) -> dict[int, datetime]:
    """Return job -> the time since which it is idle, of those that are."""
    claims = SlotClaim.objects.open().filter(job__state=JobState.RUNNING).order_by()
    readings: dict[int, list[tuple[datetime, datetime | None, datetime | None]]] = defaultdict(list)
    for job, *values in claims.values_list("job", "claimed_at", "slot__reading__idle_since", "slot__reading__at"):
        claimed_at, *reading = values
        assert claimed_at is not None
        readings[job].append((claimed_at, reading[0], reading[1]))
    found = {}
    for row in jobs:
        told = readings.get(row.pk, [])
        idle = [since for _, since, at in told if since is not None and at is not None and now - at <= _FRESH]
        if told and len(idle) == len(told):
            found[row.pk] = max([*idle, *(claimed for claimed, _, _ in told), _works_until(row, told[0][0])])
    return found


def _works_until(job: Job, claimed_at: datetime) -> datetime:
    """Return the time of the newest step, or before the first one the time until which it may start."""
    stepped_at = job.run.stepped_at
    if stepped_at is not None and stepped_at >= claimed_at:
        return stepped_at
    return claimed_at + timedelta(seconds=settings.TIDEPOOL_LAUNCH_SECONDS)


def _seen(job: Job, since: datetime | None) -> Idleness:
    group, run = job.instance_group, job.run
    return Idleness(
        since, run.idle_warned_at, run.idle_shrunk_at, run.idle_kept_until,
        group.idle_after_seconds, group.idle_grace_seconds, group.idle_reclaims,
        can_shrink=job.elastic and run.slots > job.min_slots,
    )  # fmt: skip


@transaction.atomic
def _act(job_id: int, since: datetime | None, now: datetime) -> None:
    job = lock_job(job_id)
    if job.state != JobState.RUNNING:
        return
    group, step = job.instance_group, idle_step(_seen(job, since), now)
    seconds = 0 if since is None else round((now - since).total_seconds())
    params = {"seconds": seconds, "grace": group.idle_grace_seconds, "elastic": job.elastic, "least": job.min_slots}
    if step == "clear":
        change(job, idle_warned_at=None, idle_shrunk_at=None)
        wake_scheduler()
    elif step == "warn":
        change(job, idle_warned_at=now)
        record(job, Why(Reason.GPUS_IDLE, message("idle_warned", **params, reclaims=group.idle_reclaims), "scheduler"))
    elif step == "shrink":
        change(job, idle_shrunk_at=now)
        record(job, Why(Reason.GPUS_IDLE, message("idle_shrinks", **params), "scheduler"))
        wake_scheduler()
    elif step == "halt":
        why = Why(Reason.GPUS_IDLE, message("idle_halts", **params), "scheduler")
        change(job, idle_warned_at=None, idle_shrunk_at=None)
        preempt(job, why, after_stop=JobState.SUSPENDED, within_seconds=HALT_SECONDS)


def keep(job: Job, actor: str) -> bool:
    """Let the training keep its idle GPUs for an hour; False if it was not warned, or has been kept often enough.

    The caller has locked `job`.
    """
    run = job.run
    if job.state != JobState.RUNNING or run.idle_warned_at is None or run.idle_keeps >= KEEPS:
        return False
    until = timezone.now() + timedelta(seconds=KEEP_SECONDS)
    change(job, idle_warned_at=None, idle_shrunk_at=None, idle_kept_until=until, idle_keeps=run.idle_keeps + 1)
    left = KEEPS - run.idle_keeps
    record(job, Why(Reason.GPUS_IDLE, message("idle_kept", by=actor, left=left), actor))
    wake_scheduler()
    return True
