"""Hosts that will be gone at a known moment: they drain in time, and trainings leave them or save before it.

The scheduler has elastic trainings leave a draining host live. What it cannot place elsewhere stops here: an elastic
training with a checkpoint, a fixed-size one with all the time that is left to save. A fixed-size training that will be
over before the moment finishes where it is.
"""

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from tidepool.protocol import Report

from jobs.control.durations import lengths, with_lengths
from jobs.control.lifecycle import HALT_SECONDS, preempt
from jobs.control.snapshots import snapshot
from jobs.control.transition import Why, lock_job
from jobs.messages import message
from jobs.models import Job, SlotClaim
from jobs.states import TRAINING, Reason
from workers.models import Host

__all__ = ["draining_state", "leave_in_time", "noticed"]

#: Seconds before the moment at which everything has to be over: reports and clocks are late.
_MARGIN_SECONDS = 3.0
#: Least and most seconds before the moment at which an elastic training that has found no other GPUs stops; within
#: these, half of the notice.
_LEAST_RESERVE, _MOST_RESERVE = 5.0, 60.0
#: Seconds in which trainings leave a host live.
_LIVE_SECONDS = 10.0
#: Change of the moment, in seconds, that is not written: each report reckons it anew.
_SAME_SECONDS = 1.5


def noticed(host: Host, report: Report, now: datetime) -> dict[str, Any]:
    """Return the columns of the notice that the report carries. Times of the host become those of the control plane."""
    if report.leaving_at is None:
        return {"leaving_at": None, "leaving_why": ""}
    leaving_at = now + timedelta(seconds=report.leaving_at - report.at)
    if host.leaving_at is not None and abs((leaving_at - host.leaving_at).total_seconds()) < _SAME_SECONDS:
        leaving_at = host.leaving_at
    return {"leaving_at": leaving_at, "leaving_why": report.leaving_why}


def draining_state(host: Host, state: str, now: datetime) -> tuple[str, datetime | None]:
    """Return the state of a host with its notice, and the time since which it drains for it.

    A host whose notice is withdrawn offers its GPUs again, unless an administrator drained it.
    """
    since = host.drains_for_notice_since
    window = timedelta(seconds=settings.TIDEPOOL_DRAIN_SECONDS)
    is_due = host.leaving_at is not None and host.leaving_at - now <= window
    if is_due and state == Host.State.ONLINE:
        return Host.State.DRAINING, since or now
    if since is not None and state == Host.State.DRAINING and not is_due:
        return Host.State.ONLINE, None
    return state, since if state == Host.State.DRAINING else None


def leave_in_time(now: datetime) -> None:
    """Stop the trainings that cannot leave a host in another way before it is gone. Call it about once per second."""
    hosts = Host.objects.filter(state=Host.State.DRAINING, drains_for_notice_since__isnull=False)
    for host in hosts.order_by("pk"):
        kept = SlotClaim.objects.kept().filter(slot__host=host, job__state__in=TRAINING).order_by("job")
        for job_id in kept.values_list("job", flat=True).distinct():
            _leave(job_id, host, now)


@transaction.atomic
def _leave(job_id: int, host: Host, now: datetime) -> None:
    job = lock_job(job_id)
    assert host.leaving_at is not None
    assert host.drains_for_notice_since is not None
    left = (host.leaving_at - now).total_seconds()
    if job.state not in TRAINING:
        return
    if job.elastic:
        if now < _last_chance(host.drains_for_notice_since, host.leaving_at):
            return
    elif _ends_before(job, host.leaving_at - timedelta(seconds=_MARGIN_SECONDS), now):
        return
    # A machine that is there after the moment may stay for a while.
    seconds = HALT_SECONDS if left <= 0 else max(1, round(left - _MARGIN_SECONDS))
    params = message("host_leaves", host=host.name, why=host.leaving_why, seconds=seconds, elastic=job.elastic)
    preempt(job, Why(Reason.HOST_LEAVES, params, "scheduler"), within_seconds=float(seconds))


def _last_chance(since: datetime, leaving_at: datetime) -> datetime:
    """Return the time at which an elastic training stops that has not left a host live: half of its notice before.

    since: time since which the host drains. Leaving live takes some seconds, which a training has in any case.
    """
    given = (leaving_at - since).total_seconds()
    reserve = min(max(given / 2, _LEAST_RESERVE), _MOST_RESERVE)
    live = min(_LIVE_SECONDS, given / 2) if given > 0 else _LIVE_SECONDS
    return max(leaving_at - timedelta(seconds=reserve), since + timedelta(seconds=live))


def _ends_before(job: Job, moment: datetime, now: datetime) -> bool:
    """Return whether a training will be over by then, as far as its own progress tells."""
    views = with_lengths(snapshot(now), lengths({}, now), now).jobs
    ends_at = next((view.ends_at for view in views if view.id == job.pk), None)
    return ends_at is not None and ends_at <= moment.timestamp()
