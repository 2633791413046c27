"""Host, slot and reading rows, from the reports of executors. Called by `jobs.tasks` only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from tidepool.protocol import DeviceReading, RankStatus, Report

from core import live
from jobs.control.claims import raise_revisions, release_claims
from jobs.control.judgement import judge_job
from jobs.control.lifecycle import keep_lead
from jobs.control.transition import lock_job
from jobs.control.wake import wake_scheduler
from jobs.models import SlotClaim
from jobs.usage.recording import COUNTED, count_activity
from workers.actions import record_capacity
from workers.models import GpuReading, Host, Slot
from workers.queries import held_slots, hosts_now

__all__ = ["record_host", "release_vacated"]

#: A report that is older than the newest one by less than this came late; by more, the host's clock was set back.
_LATE_SECONDS = 60.0
#: A GPU that does less than this is idle.
IDLE_BELOW_PERCENT = 5.0
_READINGS_EVERY = timedelta(seconds=1)
_RETURNING = (Host.State.OFFLINE, Host.State.LOST)


@dataclass(frozen=True)
class _News:
    """What is new about a host: for the cluster's topic, and whether the page of the hosts shows it."""

    in_cluster: dict[str, Any] = field(default_factory=dict)
    is_shown: bool = False


def record_host(report: Report, now: datetime) -> Host:
    """Store what the host says about itself. One that reports for the first time is created with its slots."""
    host, news = _store(report, now)
    # Not in the same transaction: live topics are locked before hosts (see raise_revisions).
    with transaction.atomic():
        if report.applied_revision > host.desired_revision:
            live.hold(live.CLUSTER)
            # The executor remembers more than the database: go on above it, or it would drop every desired state.
            Host.objects.filter(pk=host.pk, desired_revision__lt=report.applied_revision).update(
                desired_revision=report.applied_revision
            )
            host.desired_revision = raise_revisions([host.pk])[host.pk]
        if news.in_cluster:
            live.publish(live.CLUSTER, "state", news.in_cluster)
        if news.is_shown:
            live.publish(live.HOSTS, "state", hosts_now([host.name]))
        if "hosts" in news.in_cluster:
            wake_scheduler()
    return host


@transaction.atomic
def release_vacated(report: Report) -> None:
    """Release the slots that were to be given back and that this report shows empty."""
    held = {(rank.job, rank.attempt, rank.slot) for rank in report.ranks}
    vacating = SlotClaim.objects.filter(
        released_at__isnull=True,
        vacating_at__isnull=False,
        slot__host__name=report.host,
        vacate_revision__lte=report.applied_revision,
    )
    empty: dict[int, list[SlotClaim]] = defaultdict(list)
    for claim in vacating.select_related("slot__host").order_by("job_id", "id"):
        if (claim.job_id, claim.attempt, claim.slot.index) not in held:
            empty[claim.job_id].append(claim)
    jobs = [lock_job(job_id) for job_id in empty]
    for job in jobs:
        release_claims(empty[job.pk])
        keep_lead(job)
        judge_job(job.pk)


@transaction.atomic
def _store(report: Report, now: datetime) -> tuple[Host, _News]:
    """The host's row, and what is new about it."""
    host, _ = Host.objects.select_for_update().get_or_create(name=report.host)
    if 0 < host.reported_at - report.at < _LATE_SECONDS or not _listens(host, report):
        return host, _News()
    old_state, old_ngpus, old_report_at = host.state, host.ngpus, host.last_report_at
    _store_facts(host, report, now)
    slots = {slot.index: slot for slot in host.slots.select_related("reading")}
    has_more = _ensure_slots(host, slots, report.devices)
    readings = _store_readings(slots, report.devices, now)
    _decide_state(host, report)
    if has_more or (host.state, host.ngpus) != (old_state, old_ngpus):
        record_capacity(host, now)
    news: dict[str, Any] = {"slots": readings} if readings else {}
    if host.state != old_state:
        news["hosts"] = {host.name: {"state": str(host.state), "virtual": host.virtual}}
    return host, _News(news, is_shown=host.state != old_state or _is_due(old_report_at, now))


def _listens(host: Host, report: Report) -> bool:
    """False while an administrator has removed it and the same executor still reports; any other brings it back."""
    if host.removed_at is None:
        return True
    if (report.leaving or report.boot == host.removed_boot) and not held_slots(host):
        return False  # unless a training was given one of its slots at the last moment
    host.removed_at, host.removed_boot = None, ""
    host.save(update_fields=["removed_at", "removed_boot"])
    return True


def _is_due(last: datetime | None, now: datetime) -> bool:
    """True for the first report in each second: they come faster than anybody looks."""
    return last is None or int(last.timestamp()) != int(now.timestamp())


def _store_facts(host: Host, report: Report, now: datetime) -> None:
    facts = report.facts
    host.address, host.ncpus, host.ngpus = facts.address, facts.ncpus, facts.ngpus
    host.memory_bytes, host.virtual, host.boot = facts.memory_bytes, facts.virtual, report.boot
    host.last_report_at, host.reported_at, host.applied_revision = now, report.at, report.applied_revision
    host.nprocs, host.ncores, host.nthreads = facts.nprocs, facts.ncores, facts.nthreads
    host.swap_bytes = facts.swap_bytes
    host.save(
        update_fields=[
            *("address", "ncpus", "ngpus", "memory_bytes", "virtual", "boot"),
            *("nprocs", "ncores", "nthreads", "swap_bytes"),
            *("last_report_at", "reported_at", "applied_revision"),
        ]
    )


def _decide_state(host: Host, report: Report) -> None:
    """A host that comes back offers slots only once nothing runs there that we do not know."""
    state = host.state
    if report.leaving:
        state = Host.State.OFFLINE
    elif state in _RETURNING and host.applied_revision >= host.desired_revision and _knows_all(host, report.ranks):
        state = Host.State.ONLINE
    if state != host.state:
        Host.objects.filter(pk=host.pk, state=host.state).update(state=state)
        host.state = state


def _knows_all(host: Host, ranks: Sequence[RankStatus]) -> bool:
    claims = SlotClaim.objects.filter(released_at__isnull=True, slot__host=host)
    known = set(claims.values_list("job_id", "attempt", "slot__index"))
    return all((rank.job, rank.attempt, rank.slot) in known for rank in ranks)


def _ensure_slots(host: Host, slots: dict[int, Slot], devices: Sequence[DeviceReading]) -> bool:
    """Adds to `slots`, by index, those that the host reports for the first time; True if there are any."""
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
    """Returns what changed. At most once per second: reports come faster than anybody looks."""
    newest = max((slot.reading.at for slot in slots.values() if hasattr(slot, "reading")), default=None)
    if not devices or (newest is not None and now - newest < _READINGS_EVERY):
        return {}
    counted = count_activity(slots, devices, now, IDLE_BELOW_PERCENT)
    fields = ["utilisation_percent", "memory_used_bytes", "memory_total_bytes", "temperature_celsius", "power_watts"]
    readings = [
        GpuReading(
            slot=slots[device.slot],
            at=now,
            idle_since=_idle_since(slots[device.slot], device.utilisation_percent, now),
            **{name: getattr(device, name) for name in fields},
            **counted[device.slot],
        )
        for device in devices
    ]
    GpuReading.objects.bulk_create(
        readings,
        update_conflicts=True,
        unique_fields=["slot"],
        update_fields=["at", "idle_since", *fields, *COUNTED],
    )
    return {
        f"{reading.slot.host.name}:{reading.slot.index}": {"utilisation_percent": reading.utilisation_percent}
        for reading in readings
        if _utilisation(slots[reading.slot.index]) != reading.utilisation_percent
    }


def _idle_since(slot: Slot, utilisation_percent: float | None, now: datetime) -> datetime | None:
    if utilisation_percent is None or utilisation_percent >= IDLE_BELOW_PERCENT:
        return None
    return (slot.reading.idle_since if hasattr(slot, "reading") else None) or now


def _utilisation(slot: Slot) -> float | None:
    return slot.reading.utilisation_percent if hasattr(slot, "reading") else None
