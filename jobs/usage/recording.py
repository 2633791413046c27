"""Adds up what held GPUs do, with each report of a host, in the rows of their readings: one query more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from tidepool.protocol import DeviceReading

from jobs.models import GpuActivity, SlotClaim
from jobs.usage.activity import Counted, Reading, count
from jobs.usage.intervals import moment, to_ms
from workers.models import GpuReading, Slot

__all__ = ["COUNTED", "count_activity"]

#: The columns of a reading that say what is being added up.
COUNTED = ("counted_claim", "counted_from", "busy_ms", "idle_ms")


def count_activity(
    slots: Mapping[int, Slot], devices: Sequence[DeviceReading], now: datetime, idle_below_percent: float
) -> dict[int, dict[str, object]]:
    """Slot index -> the columns `COUNTED` of its new reading. What is complete is written down."""
    told = {device.slot: _is_busy(device, idle_below_percent) for device in devices}
    before = {index: getattr(slots[index], "reading", None) for index in told}
    if all(busy is None for busy in told.values()) and not any(row and row.counted_claim for row in before.values()):
        return {index: _columns(None) for index in told}
    held = SlotClaim.objects.filter(released_at__isnull=True, slot__in=[slots[index].pk for index in told]).order_by()
    claims = {slot: (claim, to_ms(at)) for slot, claim, at in held.values_list("slot_id", "pk", "claimed_at")}
    columns: dict[int, dict[str, object]] = {}
    complete: list[Counted] = []
    for index, is_busy in told.items():
        claim, claimed_at = claims.get(slots[index].pk, (None, 0))
        row = before[index]
        reading = Reading(to_ms(now), to_ms(row.at) if row else None, is_busy, claim, claimed_at)
        counted, finished = count(_counted(row), reading)
        columns[index] = _columns(counted)
        complete += finished
    _write(complete)
    return columns


def _is_busy(device: DeviceReading, idle_below_percent: float) -> bool | None:
    """A virtual GPU tells how busy a CPU is: that says nothing about GPUs."""
    if device.virtual or device.utilisation_percent is None:
        return None
    return device.utilisation_percent >= idle_below_percent


def _counted(row: GpuReading | None) -> Counted | None:
    if row is None or row.counted_claim is None or row.counted_from is None:
        return None
    return Counted(row.counted_claim, to_ms(row.counted_from), row.busy_ms, row.idle_ms)


def _columns(counted: Counted | None) -> dict[str, object]:
    if counted is None:
        return {"counted_claim": None, "counted_from": None, "busy_ms": 0, "idle_ms": 0}
    return dict(zip(COUNTED, (counted.claim, moment(counted.start), counted.busy, counted.idle), strict=True))


def _write(complete: Sequence[Counted]) -> None:
    if not complete:
        return
    rows = [
        GpuActivity(claim_id=one.claim, at=moment(one.start), busy_ms=one.busy, idle_ms=one.idle) for one in complete
    ]
    # A clock that was set back may tell of the same quarter of an hour again: what was written first stays.
    GpuActivity.objects.bulk_create(rows, ignore_conflicts=True)
