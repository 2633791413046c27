"""Rows of hosts' slots, and of the newest readings of their devices. Called by `jobs.control.hosts`, under its locks.

Readings that repeat are written every 10 s: pages learn of newer ones by `jobs.control.live_readings`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidepool.protocol import DeviceReading

from jobs.control.gpu_activity import COUNTED, Activity, Held, activity_of, store_activity
from jobs.gpu_time import to_ms
from jobs.models import SlotClaim
from jobs.queries.gpu_status import IDLE_BELOW_PERCENT, is_idle
from workers.models import GpuReading, Host, Slot

__all__ = ["READINGS_EVERY", "Claims", "HostReadings", "claims_of", "ensure_slots", "slots_of", "store_readings"]

#: Time between two rows of a reading; and if its host has news.
READINGS_EVERY = timedelta(seconds=10)
_EVERY_WITH_NEWS = timedelta(seconds=1)
_MEASURES = ("utilisation_percent", "memory_used_bytes", "memory_total_bytes", "temperature_celsius", "power_watts")


@dataclass(frozen=True)
class Claims:
    """Open claims on one host's slots."""

    #: (job, attempt, slot index).
    places: set[tuple[int, int, int]] = field(default_factory=set)
    #: Slot's key -> its claim.
    held: dict[int, Held] = field(default_factory=dict)


def slots_of(hosts: Collection[Host]) -> dict[int, dict[int, Slot]]:
    """Return the slots of each host, with their newest readings, by the host's key and their index."""
    found: dict[int, dict[int, Slot]] = {host.pk: {} for host in hosts}
    for slot in Slot.objects.filter(host__in=found).select_related("reading").order_by():
        found[slot.host_id][slot.index] = slot
    return found


def claims_of(hosts: Collection[Host]) -> dict[int, Claims]:
    """Return the open claims on each host's slots, by the host's key."""
    found: dict[int, Claims] = defaultdict(Claims)
    columns = ("slot__host", "slot", "slot__index", "pk", "job", "attempt", "claimed_at")
    rows = SlotClaim.objects.open().filter(slot__host__in=[host.pk for host in hosts]).order_by()
    for host, slot, index, claim, job, attempt, claimed_at in rows.values_list(*columns):
        found[host].places.add((job, attempt, index))
        found[host].held[slot] = Held(claim, to_ms(claimed_at))
    return found


def ensure_slots(host: Host, slots: dict[int, Slot], devices: Sequence[DeviceReading]) -> bool:
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


@dataclass(frozen=True)
class HostReadings:
    slots: Mapping[int, Slot]
    devices: Sequence[DeviceReading]
    claims: Claims
    #: Time at which the host was heard: a report that waited says nothing about now.
    at: datetime
    #: Whether the report repeats what the one before said, but for readings.
    repeats: bool

    def are_due(self) -> bool:
        newest = max((slot.reading.at for slot in self.slots.values() if hasattr(slot, "reading")), default=None)
        every = READINGS_EVERY if self.repeats else _EVERY_WITH_NEWS
        # A reading from the future was stored before the control plane's clock was set back.
        return bool(self.devices) and (newest is None or abs(self.at - newest) >= every)


def store_readings(found: Mapping[int, HostReadings]) -> None:
    """Store the readings of hosts that are due. found: host's key -> its readings."""
    due = {host: readings for host, readings in found.items() if readings.are_due()}
    activity = {
        host: activity_of(one.slots, one.devices, one.claims.held, one.at, IDLE_BELOW_PERCENT)
        for host, one in due.items()
    }
    rows = [row for host, one in due.items() for row in _rows(one, activity[host])]
    if rows:
        store_activity(activity)
        GpuReading.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["slot"],
            update_fields=["at", "idle_since", *_MEASURES, *COUNTED],
        )


def _rows(readings: HostReadings, activity: Activity) -> Iterable[GpuReading]:
    for device in readings.devices:
        slot = readings.slots[device.slot]
        before: GpuReading | None = getattr(slot, "reading", None)
        yield GpuReading(
            slot=slot,
            at=readings.at,
            idle_since=_idle_since(before, device, readings.at),
            **{name: getattr(device, name) for name in _MEASURES},
            **activity.columns[device.slot],
        )


def _idle_since(before: GpuReading | None, device: DeviceReading, now: datetime) -> datetime | None:
    if not is_idle(device):
        return None
    return (before.idle_since if before else None) or now
