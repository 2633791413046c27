"""Busy and idle time of held GPUs, and their use over time, summed in the rows of their readings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tidepool.protocol import DeviceReading

from jobs.control import gpu_spans
from jobs.gpu_time import PIECE, cuts, moment, to_ms
from jobs.models import GpuActivity, SlotClaim
from workers.models import Slot

__all__ = ["COUNTED", "MAX_GAP_MS", "Activity", "Counted", "Held", "Reading", "activity_of", "count", "store_activity"]

#: Longest gap between readings that counts: after a longer one, the GPU's activity in between is unknown. Rows of
#: readings that repeat are written every 10 s (`jobs.control.readings`).
MAX_GAP_MS = 30_000
#: Columns of a reading that hold the current sums.
COUNTED = ("counted_claim", "counted_from", "busy_ms", "idle_ms", "open_span")


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


@dataclass(frozen=True, slots=True)
class Held:
    """The claim that holds a slot, and its time in milliseconds."""

    claim: int
    claimed_at: int


@dataclass(frozen=True, slots=True)
class Activity:
    #: Slot index -> the columns `COUNTED` of its new reading.
    columns: Mapping[int, dict[str, object]]
    #: Completed quarters of an hour, and completed spans.
    complete: Sequence[Counted] = ()
    spans: Sequence[gpu_spans.Span] = ()


def activity_of(
    slots: Mapping[int, Slot],
    devices: Sequence[DeviceReading],
    held: Mapping[int, Held],
    now: datetime,
    idle_below_percent: float,
) -> Activity:
    """Add readings of a host's devices to the sums in the rows of their slots. Pure. held: slot's key -> its claim."""
    columns: dict[int, dict[str, object]] = {}
    complete: list[Counted] = []
    spans: list[gpu_spans.Span] = []
    for device in devices:
        slot, row = slots[device.slot], getattr(slots[device.slot], "reading", None)
        claim = held.get(slot.pk)
        is_busy = _is_busy(device, idle_below_percent)
        before = to_ms(row.at) if row else None
        reading = Reading(to_ms(now), before, is_busy, claim.claim if claim else None, claim.claimed_at if claim else 0)
        former = None
        if row and row.counted_claim and row.counted_from:
            former = Counted(row.counted_claim, to_ms(row.counted_from), row.busy_ms, row.idle_ms)
        counted, finished = count(former, reading)
        complete += finished
        open_span = gpu_spans.from_json(row.open_span) if row and row.open_span else None
        span, ended = gpu_spans.add(open_span, *_covered(reading), _use(reading, device))
        spans += ended
        columns[device.slot] = _columns(counted, span)
    return Activity(columns, complete, spans)


def store_activity(found: Mapping[int, Activity]) -> None:
    """Store what is complete. found: host's key -> its activity."""
    complete = [
        GpuActivity(claim_id=one.claim, at=moment(one.start), busy_ms=one.busy, idle_ms=one.idle)
        for activity in found.values()
        for one in activity.complete
    ]
    if complete:
        # If a clock was set back, a quarter of an hour may come twice: the stored row stays.
        GpuActivity.objects.bulk_create(_of_known_claims(complete), ignore_conflicts=True)
    gpu_spans.store_all({host: activity.spans for host, activity in found.items()})


def count(counted: Counted | None, reading: Reading) -> tuple[Counted | None, Sequence[Counted]]:
    """Add a reading; returns the open sums and the completed ones. Pure."""
    finished = []
    if counted is not None and counted.claim != reading.claim:
        finished.append(counted)
        counted = None
    told = _covered(reading) if reading.is_busy is not None else (0, 0)
    for start, end in cuts(*told, PIECE):
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


def _of_known_claims(rows: Sequence[GpuActivity]) -> list[GpuActivity]:
    """Leave out the sums of claims that are gone: a deleted training takes its claims along."""
    known = set(SlotClaim.objects.filter(pk__in={row.claim_id for row in rows}).values_list("pk", flat=True))
    return [row for row in rows if row.claim_id in known]


def _covered(reading: Reading) -> tuple[int, int]:
    """Return the time span of the claim that the reading covers; an empty span if none."""
    if reading.claim is None or reading.before is None:
        return 0, 0
    if not 0 < reading.at - reading.before <= MAX_GAP_MS:
        return 0, 0
    return max(reading.before, reading.claimed_at), reading.at


def _is_busy(device: DeviceReading, idle_below_percent: float) -> bool | None:
    """Return whether the GPU is busy; for a virtual GPU, whether its processor is."""
    if device.utilisation_percent is None:
        return None
    return device.utilisation_percent >= idle_below_percent


def _use(reading: Reading, device: DeviceReading) -> gpu_spans.Use | None:
    memory = None if device.memory_used_bytes is None else int(device.memory_used_bytes)
    told = device.processes
    if reading.claim is None or (device.utilisation_percent is None and memory is None and told is None):
        return None
    rates = () if told is None else (told.cores, told.read_rate, told.written_rate, told.received_rate, told.sent_rate)
    return gpu_spans.Use(reading.claim, device.utilisation_percent, memory, gpu_spans.HostUse(*rates))


def _columns(counted: Counted | None, span: gpu_spans.Span | None) -> dict[str, object]:
    values = (counted.claim, moment(counted.start), counted.busy, counted.idle) if counted else (None, None, 0, 0)
    return dict(zip(COUNTED, (*values, gpu_spans.to_json(span) if span else None), strict=True))
