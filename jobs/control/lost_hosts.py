"""Hosts that fall silent, and the jobs on them. Called once a second by the scheduler's process.

Nothing is ended for lack of contact: ranks of a silent host may well train on. Its slots are offered to nobody until it
has reported again; jobs that it leads get another lead host after the lease, and leave it only after twice the lease,
both counted while the control plane itself was well. If all hosts are silent, the fault is more likely here than there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from jobs.control.claims import open_claims, raise_revisions, release_claims
from jobs.control.ending import LIVE_RANKS, requeue
from jobs.control.judgement import judge_job
from jobs.control.transition import Why, change, lock_job, record
from jobs.messages import message
from jobs.models import Job, Rank, SlotClaim
from jobs.states import HOLDING, JobState, RankState, Reason
from workers.actions import write_host_states
from workers.models import Host

__all__ = ["Watch", "reap_lost_hosts"]

logger = logging.getLogger(__name__)

_HEARD = (Host.State.ONLINE, Host.State.DRAINING)
_WATCHED = (*_HEARD, Host.State.LOST)


@dataclass(frozen=True)
class Watch:
    """Since when reports have been coming in without a break; None: none come now."""

    well_since: datetime | None = None


def reap_lost_hosts(watch: Watch, now: datetime) -> Watch:
    """Mark silent hosts as LOST, and take jobs off those that stay silent. Call it about once per second."""
    lease = timedelta(seconds=settings.TIDEPOOL_LEASE_SECONDS)
    hosts = list(Host.objects.filter(state__in=_WATCHED).order_by("pk"))
    silent = [host for host in hosts if host.last_report_at is None or now - host.last_report_at > lease]
    for host in silent:
        if host.state != Host.State.LOST:
            _mark_lost(host)
    if len(silent) == len(hosts):
        return Watch()
    well_since = watch.well_since or now
    for host in silent:
        silence = now - max(well_since, host.last_report_at or well_since)
        if silence >= lease:
            _move_leads(host)
        if silence >= 2 * lease:
            _take_jobs_off(host)
    return Watch(well_since)


def _mark_lost(host: Host) -> None:
    unheard = Host.objects.filter(pk=host.pk, state=host.state, last_report_at=host.last_report_at)
    if write_host_states(unheard, Host.State.LOST):
        logger.warning("host=%s is lost: its last report came at %s", host.name, host.last_report_at)


def _move_leads(host: Host) -> None:
    """Ranks elsewhere that lost their peers and their coordinator on a host wait for another coordinator.

    Should the host be well but silent, its coordinator is ended by the new one.
    """
    led = Job.objects.filter(run__lead_host=host.name, state__in=(JobState.STARTING, JobState.RUNNING))
    for job_id in led.order_by("pk").values_list("pk", flat=True):
        _move_lead(job_id, host)


@transaction.atomic
def _move_lead(job_id: int, host: Host) -> None:
    job = lock_job(job_id)
    claims = SlotClaim.objects.filter(job=job, released_at__isnull=True, vacating_at__isnull=True)
    places = list(claims.select_related("slot__host").order_by("id"))
    heard = [claim.slot.host.name for claim in places if claim.slot.host.state in _HEARD]
    if job.run.lead_host == host.name and job.state in (JobState.STARTING, JobState.RUNNING) and heard:
        logger.warning("job=%s attempt=%s is led by %s now", job.pk, job.run.attempt, heard[0])
        change(job, lead_host=heard[0])
        raise_revisions({claim.slot.host_id for claim in places})


def _take_jobs_off(host: Host) -> None:
    held = SlotClaim.objects.filter(released_at__isnull=True, slot__host=host)
    for job_id in sorted(set(held.values_list("job_id", flat=True))):
        _take_off(job_id, host)


@transaction.atomic
def _take_off(job_id: int, host: Host) -> None:
    """The job gives up its slots on the host; a gang, and one without slots elsewhere, starts again as a whole."""
    job = lock_job(job_id)
    claims = open_claims(job)
    here = [claim for claim in claims if claim.slot.host_id == host.pk]
    if not here:
        return
    kept = [claim for claim in claims if claim.slot.host_id != host.pk and claim.vacating_at is None]
    logger.warning("job=%s attempt=%s gives up %s slots of %s", job.pk, job.run.attempt, len(here), host.name)
    Rank.objects.filter(job=job, host=host.name, state__in=LIVE_RANKS).update(state=RankState.LOST, rank=None)
    release_claims(here)
    why = Why(Reason.HOST_LOST, message("host_lost", host=host.name), "system")
    if job.state in (JobState.STARTING, JobState.RUNNING):
        _go_on(job, kept, why)
    # When the host comes back, it must learn that it lost the job before its slots are offered again.
    raise_revisions([host.pk])
    if job.state in HOLDING:
        judge_job(job.pk)


def _go_on(job: Job, kept: Iterable[SlotClaim], why: Why) -> None:
    places = list(kept)
    if not places or not job.elastic:  # a gang without one of its ranks is none
        requeue(job, why)
        return
    lead = (
        job.run.lead_host
        if job.run.lead_host in {claim.slot.host.name for claim in places}
        else places[0].slot.host.name
    )
    change(job, why, target_revision=job.run.target_revision + 1, target_slots=len(places), lead_host=lead)
    record(job, why)
    raise_revisions({claim.slot.host_id for claim in places})
