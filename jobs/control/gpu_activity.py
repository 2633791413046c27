"""Busy and idle time of held GPUs, summed in the rows of their readings: one more query per report of a host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tidepool.protocol import DeviceReading

from jobs.gpu_time import PIECE, cuts, moment, to_ms
from jobs.models import GpuActivity, SlotClaim
from workers.models import Slot

__all__ = ["COUNTED", "MAX_GAP_MS", "Counted", "Reading", "count", "count_activity"]

#: Longest gap between readings that counts: after a longer one, the GPU's activity in between is unknown.
MAX_GAP_MS = 10_000
#: Columns of a reading that hold the current sums.
COUNTED = ("counted_claim", "counted_from", "busy_ms", "idle_ms")


@dataclass(frozen=True, slots=True)
class Counted:
    """Sums of a claim for the quarter of an hour that begins at `start`, so far."""

    claim: int
    start: int
    busy: int = 0
    idle: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    #: Time of this reading and of the one before, in milliseconds.
    at: int
    before: int | None
    #: Whether the GPU is busy; None: it does not report its utilization, or there is no GPU.
    is_busy: bool | None
    #: Claim that holds the GPU, and the time of the claim; None: the GPU is free.
    claim: int | None
    claimed_at: int = 0


def count_activity(
    slots: Mapping[int, Slot], devices: Sequence[DeviceReading], now: datetime, idle_below_percent: float
) -> dict[int, dict[str, object]]:
    """Store completed quarters of an hour. Returns slot index -> the columns `COUNTED` of its new reading."""
    told = {device.slot: _is_busy(device, idle_below_percent) for device in devices}
    before = {index: getattr(slots[index], "reading", None) for index in told}
    if all(busy is None for busy in told.values()) and not any(row and row.counted_claim for row in before.values()):
        return {index: _columns(None) for index in told}
    held = SlotClaim.objects.open().filter(slot__in=[slots[index].pk for index in told]).order_by()
    claims = {slot: (claim, to_ms(at)) for slot, claim, at in held.values_list("slot_id", "pk", "claimed_at")}
    columns: dict[int, dict[str, object]] = {}
    complete: list[GpuActivity] = []
    for index, is_busy in told.items():
        claim, claimed_at = claims.get(slots[index].pk, (None, 0))
        row = before[index]
        reading = Reading(to_ms(now), to_ms(row.at) if row else None, is_busy, claim, claimed_at)
        former = None
        if row and row.counted_claim and row.counted_from:
            former = Counted(row.counted_claim, to_ms(row.counted_from), row.busy_ms, row.idle_ms)
        counted, finished = count(former, reading)
        columns[index] = _columns(counted)
        complete += [
            GpuActivity(claim_id=one.claim, at=moment(one.start), busy_ms=one.busy, idle_ms=one.idle)
            for one in finished
        ]
    # If a clock was set back, a quarter of an hour may come twice: the stored row stays.
    GpuActivity.objects.bulk_create(complete, ignore_conflicts=True)
    return columns


def count(counted: Counted | None, reading: Reading) -> tuple[Counted | None, Sequence[Counted]]:
    """Add a reading; returns the open sums and the completed ones. Pure."""
    finished = []
    if counted is not None and counted.claim != reading.claim:
        finished.append(counted)
        counted = None
    for start, end in cuts(*_told(reading), PIECE):
        quarter = start - start % PIECE
        if counted is not None and counted.start != quarter:
            finished.append(counted)
            counted = None
        assert reading.claim is not None
        counted = counted or Counted(reading.claim, quarter)
        if reading.is_busy:
            counted = replace(counted, busy=counted.busy + end - start)
        else:
            counted = replace(counted, idle=counted.idle + end - start)
    return counted, finished


def _told(reading: Reading) -> tuple[int, int]:
    """Return the time span that the reading covers; an empty span if none."""
    if reading.claim is None or reading.is_busy is None or reading.before is None:
        return 0, 0
    if not 0 < reading.at - reading.before <= MAX_GAP_MS:
        return 0, 0
    return max(reading.before, reading.claimed_at), reading.at


def _is_busy(device: DeviceReading, idle_below_percent: float) -> bool | None:
    """Return whether the GPU is busy; for a virtual GPU, whether its processor is."""
    if device.utilisation_percent is None:
        return None
    return device.utilisation_percent >= idle_below_percent


def _columns(counted: Counted | None) -> dict[str, object]:
    values = (counted.claim, moment(counted.start), counted.busy, counted.idle) if counted else (None, None, 0, 0)
    return dict(zip(COUNTED, values, strict=True))
