"""Reports of hosts about themselves, and detection of hosts that stop reporting.

`jobs.control.reports` stores reports; the scheduler's process looks for silent hosts once a second.

While the control plane is behind with its reports (`workers.lateness`), it judges nobody by silence.

No process is ended for lack of contact: ranks of a silent host may well keep training. The slots of a silent host
are offered to nobody until it has reported again. Jobs that it leads get another lead host after the lease, and lose
their slots there only after twice the lease, both counted while the control plane itself was well. If all hosts are
silent, the control plane is more likely at fault than the hosts.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.db import transaction
from tidepool.protocol import DeviceReading, Report

from core import live
from jobs.control.dead_letters import PASSES, in_words
from jobs.control.dispatch import wake_scheduler
from jobs.control.gpu_activity import COUNTED, count_activity
from jobs.control.job_end import judge_job, requeue
from jobs.control.leaving import draining_state, noticed
from jobs.control.lifecycle import hosts_of, keep_lead, led_by, open_claims, raise_revisions, release_claims
from jobs.control.transition import Why, change, lock_job, record
from jobs.messages import message
from jobs.models import Job, Rank, SlotClaim
from jobs.queries.gpu_status import IDLE_BELOW_PERCENT, is_idle
from jobs.states import HOLDING, LIVE_RANKS, TRAINING, RankState, Reason
from workers.actions import record_capacity, write_host_states
from workers.clocks import behind_seconds, late_seconds, with_reading
from workers.lateness import is_behind, recent_delay
from workers.models import GpuReading, Host, Slot
from workers.queries import held_slots
from workers.topics import CLUSTER

__all__ = ["RETURNING", "note_problem", "reap_lost_hosts", "record_host", "release_vacated"]

logger = logging.getLogger(__name__)

RETURNING = (Host.State.OFFLINE, Host.State.LOST)
_HEARD = (Host.State.ONLINE, Host.State.DRAINING)
_WATCHED = (*_HEARD, Host.State.LOST)

#: Largest age difference, in seconds, of a late report from an earlier start of the executor. A larger difference
#: means that the host's clock was set back.
_LATE_SECONDS = 60.0
_CLOCK_EVERY = timedelta(seconds=1)
#: Longest delay of reports at which they tell the offset of a clock.
_READABLE_DELAY = timedelta(seconds=2.5)
_READINGS_EVERY = timedelta(seconds=1)
_MEASURES = ("utilisation_percent", "memory_used_bytes", "memory_total_bytes", "temperature_celsius", "power_watts")


def record_host(report: Report, now: datetime) -> Host | None:
    """Store the host's report about itself, and create its slots. Returns None if no such host is enrolled."""
    stored = _store(report, now)
    if stored is None:
        return None
    host, news = stored
    # Separate transaction: live topics are locked before hosts (see raise_revisions).
    with transaction.atomic():
        if report.applied_revision > host.desired_revision:
            live.hold(CLUSTER)
            # The executor's revision is ahead of the database: continue above it, or it would ignore every desired
            # state.
            Host.objects.filter(pk=host.pk, desired_revision__lt=report.applied_revision).update(
                desired_revision=report.applied_revision
            )
            host.desired_revision = raise_revisions([host.pk])[host.pk]
        if news:
            live.publish(CLUSTER, "state", news)
        if "hosts" in news:
            wake_scheduler()
    return host


def release_vacated(report: Report) -> str:
    """Release the vacated slots that this report shows empty.

    Returns the problem with one training's slots, or "". The next report retries.
    """
    held = {(rank.job, rank.attempt, rank.slot) for rank in report.ranks}
    vacating = SlotClaim.objects.open().filter(
        vacating_at__isnull=False, slot__host__name=report.host, vacate_revision__lte=report.applied_revision
    )
    empty: dict[int, list[SlotClaim]] = defaultdict(list)
    for claim in vacating.select_related("slot__host").order_by("job_id", "id"):
        if (claim.job_id, claim.attempt, claim.slot.index) not in held:
            empty[claim.job_id].append(claim)
    problem = ""
    for job_id, claims in empty.items():
        try:
            _release(job_id, claims)
        except PASSES:
            raise
        except Exception as error:  # other trainings' slots are still released
            logger.exception("job=%s: slots that it gave back cannot be released", job_id)
            problem = f"GPUs that training {job_id} gave back: {in_words(error)}"
    return problem


@transaction.atomic
def _release(job_id: int, claims: Sequence[SlotClaim]) -> None:
    job = lock_job(job_id)
    release_claims(claims)
    keep_lead(job)
    judge_job(job.pk)


def note_problem(host: Host, problem: str) -> None:
    """Store the problem with the host's newest report; "": none."""
    if problem != host.report_problem:
        Host.objects.filter(pk=host.pk).update(report_problem=problem)


@transaction.atomic
def _store(report: Report, now: datetime) -> tuple[Host, dict[str, Any]] | None:
    """Return the host's row and its changes for the cluster's topic."""
    host = Host.objects.select_for_update().filter(name=report.host).first()
    if host is None:
        return None
    if _is_late(host, report) or not _listens(host, report):
        return host, {}
    before = host.state, host.ngpus, host.leaving_at
    _store_facts(host, report, now)
    slots = {slot.index: slot for slot in host.slots.select_related("reading")}
    has_more = _ensure_slots(host, slots, report.devices)
    # The time at which the host was heard: a report that waited says nothing about now.
    readings = _store_readings(slots, report.devices, host.last_report_at or now)
    _decide_state(host, report, now)
    news: dict[str, Any] = {"slots": readings} if readings else {}
    if has_more or (host.state, host.ngpus, host.leaving_at) != before:
        record_capacity(host, now)
        news["hosts"] = {host.name: {"state": str(host.state), "virtual": host.virtual}}
    return host, news


def _is_late(host: Host, report: Report) -> bool:
    age = host.reported_at - report.at
    return age > 0 and (report.boot == host.boot or age < _LATE_SECONDS)


def _listens(host: Host, report: Report) -> bool:
    """Return whether reports are accepted: not from the same executor after an administrator removed the host."""
    if host.removed_at is None:
        return True
    if (report.leaving or report.boot == host.removed_boot) and not held_slots(host):
        return False  # accepted if a training got a slot at the last moment
    host.removed_at, host.removed_boot = None, ""
    host.save(update_fields=["removed_at", "removed_boot"])
    return True


def _store_facts(host: Host, report: Report, now: datetime) -> None:
    columns = msgspec.structs.asdict(report.facts) | {
        **_clock(host, report, now),
        **noticed(host, report, now),
        "boot": report.boot,
        "reported_at": report.at,
        "applied_revision": report.applied_revision,
    }
    for name, value in columns.items():
        setattr(host, name, value)
    host.save(update_fields=columns)


def _clock(host: Host, report: Report, now: datetime) -> dict[str, Any]:
    """Return the report's time by the control plane's clock, and the state of the host's clock."""
    offset = now.timestamp() - report.at
    offsets, read_at = (host.clock_offsets, host.clock_read_at) if report.boot == host.boot else ([], None)
    delay = recent_delay(now) or timedelta(0)
    # A host without a reading was heard at the earliest when the last mark before its report was sent.
    late = late_seconds(offsets, offset) if offsets or not is_behind(delay) else delay.total_seconds()
    # While reports wait, their age would look like the offset of the host's clock.
    if delay <= _READABLE_DELAY and (read_at is None or now - read_at >= _CLOCK_EVERY):
        offsets, read_at = with_reading(offsets, offset), now
    steady = behind_seconds(offsets, report.least_behind)
    jumped = 0.0 if report.clock is None else report.at - report.clock
    return {
        "last_report_at": now - timedelta(seconds=late),
        "clock_offsets": offsets,
        "clock_read_at": read_at,
        "clock_behind_seconds": None if steady is None else steady + jumped,
    }


def _decide_state(host: Host, report: Report, now: datetime) -> None:
    """Update the host's state. A returning host offers slots only if it runs no process unknown to the database."""
    state = host.state
    running = {(rank.job, rank.attempt, rank.slot) for rank in report.ranks}
    known = SlotClaim.objects.open().filter(slot__host=host).values_list("job_id", "attempt", "slot__index")
    if report.leaving:
        state = Host.State.OFFLINE
    elif _is_silent(host, now):  # the report was delayed: the host may be gone by now
        return
    elif state in RETURNING and host.applied_revision >= host.desired_revision and running <= set(known):
        state = Host.State.ONLINE
    state, since = draining_state(host, state, now)
    if (state, since) != (host.state, host.drains_for_notice_since):
        Host.objects.filter(pk=host.pk, state=host.state).update(state=state, drains_for_notice_since=since)
        host.state, host.drains_for_notice_since = state, since


def _ensure_slots(host: Host, slots: dict[int, Slot], devices: Sequence[DeviceReading]) -> bool:
    """Add the slots that the host reports for the first time to `slots`, by index; returns whether there are any."""
    known = len(slots)
    for device in devices:
        facts = {
            "device_model": device.model[:128],
            "device_uuid": (device.uuid or "")[:128],
            "virtual": device.virtual,
        }
        slot = slots.get(device.slot)
        if slot is None:
            slots[device.slot] = Slot.objects.create(host=host, index=device.slot, **facts)
        elif any(getattr(slot, name) != value for name, value in facts.items()):
            Slot.objects.filter(pk=slot.pk).update(**facts)
    return len(slots) > known


def _store_readings(
    slots: dict[int, Slot], devices: Sequence[DeviceReading], now: datetime
) -> dict[str, dict[str, float | None]]:
    """Store readings at most once per second, because reports come more often; returns the changed values."""
    before = {slot.index: slot.reading for slot in slots.values() if hasattr(slot, "reading")}
    newest = max((reading.at for reading in before.values()), default=None)
    if not devices or (newest is not None and now - newest < _READINGS_EVERY):
        return {}
    counted = count_activity(slots, devices, now, IDLE_BELOW_PERCENT)
    readings = [
        GpuReading(
            slot=slots[device.slot],
            at=now,
            idle_since=_idle_since(before.get(device.slot), device, now),
            **{name: getattr(device, name) for name in _MEASURES},
            **counted[device.slot],
        )
        for device in devices
    ]
    GpuReading.objects.bulk_create(
        readings,
        update_conflicts=True,
        unique_fields=["slot"],
        update_fields=["at", "idle_since", *_MEASURES, *COUNTED],
    )
    return {
        f"{reading.slot.host.name}:{reading.slot.index}": {"utilisation_percent": reading.utilisation_percent}
        for reading in readings
        if getattr(before.get(reading.slot.index), "utilisation_percent", None) != reading.utilisation_percent
    }


def _idle_since(before: GpuReading | None, device: DeviceReading, now: datetime) -> datetime | None:
    if not is_idle(device):
        return None
    return (before.idle_since if before else None) or now


# --- hosts that fall silent ------------------------------------------------------------------------------------------


def reap_lost_hosts(well_since: datetime | None, now: datetime) -> datetime | None:
    """Mark silent hosts as LOST, and remove jobs from hosts that stay silent. Call it about once per second.

    now: time up to which all reports have been taken.
    well_since: the previous return value: time since which reports have been arriving, or None if none arrive.
    """
    lease = _lease()
    hosts = list(Host.objects.filter(state__in=_WATCHED).order_by("pk"))
    silent = [host for host in hosts if _is_silent(host, now)]
    for host in silent:
        unheard = Host.objects.filter(pk=host.pk, state=host.state, last_report_at=host.last_report_at)
        if host.state != Host.State.LOST and write_host_states(unheard, Host.State.LOST):
            logger.warning("host=%s is lost: its last report came at %s", host.name, host.last_report_at)
    if len(silent) == len(hosts):
        return None
    well_since = well_since or now
    for host in silent:
        silence = now - max(well_since, host.last_report_at or well_since)
        if silence >= lease:
            led = Job.objects.filter(run__lead_host=host.name, state__in=TRAINING)
            for job_id in led.order_by("pk").values_list("pk", flat=True):
                _move_lead(job_id, host)
        if silence >= 2 * lease:
            held = SlotClaim.objects.open().filter(slot__host=host)
            for job_id in sorted(set(held.values_list("job_id", flat=True))):
                _take_off(job_id, host)
    return well_since


def _is_silent(host: Host, now: datetime) -> bool:
    return host.last_report_at is None or now - host.last_report_at > _lease()


def _heard_since(host: Host) -> bool:
    """Return whether the host has reported meanwhile: this process may have hung while another scheduler leads."""
    return not Host.objects.filter(pk=host.pk, last_report_at=host.last_report_at).exists()


def _lease() -> timedelta:
    return timedelta(seconds=settings.TIDEPOOL_LEASE_SECONDS)


@transaction.atomic
def _move_lead(job_id: int, host: Host) -> None:
    """Move the job's coordinator to a host that reports, for the ranks elsewhere that lost their peers and coordinator.

    If the silent host is well, the new coordinator ends the old one.
    """
    job = lock_job(job_id)
    if _heard_since(host):
        return
    places = list(SlotClaim.objects.kept().filter(job=job).select_related("slot__host").order_by("id"))
    heard = [claim.slot.host.name for claim in places if claim.slot.host.state in _HEARD]
    if job.run.lead_host == host.name and job.state in TRAINING and heard:
        logger.warning("job=%s attempt=%s is led by %s now", job.pk, job.run.attempt, heard[0])
        params = {"host": host.name, "lead": heard[0], "seconds": _lease().total_seconds()}
        why = Why(Reason.HOST_LOST, message("lead_moved", **params), "system")
        change(job, why, **led_by(job, heard[0]))
        record(job, why)
        raise_revisions(hosts_of(places))


@transaction.atomic
def _take_off(job_id: int, host: Host) -> None:
    """Release the job's slots on the host; a gang, or a job without slots elsewhere, is queued again."""
    job = lock_job(job_id)
    if _heard_since(host):
        return
    claims = open_claims(job)
    here = [claim for claim in claims if claim.slot.host_id == host.pk]
    if not here:
        return
    kept = [claim for claim in claims if claim.slot.host_id != host.pk and claim.vacating_at is None]
    logger.warning("job=%s attempt=%s gives up %s slots of %s", job.pk, job.run.attempt, len(here), host.name)
    Rank.objects.filter(job=job, host=host.name, state__in=LIVE_RANKS).update(state=RankState.LOST, rank=None)
    release_claims(here)
    why = Why(Reason.HOST_LOST, message("host_lost", host=host.name), "system")
    if job.state in TRAINING:
        _go_on(job, kept, why)
    # A returning host must learn that it lost the job before its slots are offered again.
    raise_revisions([host.pk])
    if job.state in HOLDING:
        judge_job(job.pk)


def _go_on(job: Job, kept: Sequence[SlotClaim], why: Why) -> None:
    if not kept or not job.elastic:  # a gang cannot lose a rank
        requeue(job, why)
        return
    names = [claim.slot.host.name for claim in kept]
    led = {} if job.run.lead_host in names else led_by(job, names[0])
    change(job, why, target_revision=job.run.target_revision + 1, target_slots=len(kept), **led)
    record(job, why)
    raise_revisions(hosts_of(kept))
