"""Queries for claims, the activity of held GPUs, and the pool's capacity, as intervals."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from django.db.models import Max, Min, Q, QuerySet

from jobs.gpu_time import DAY, HOUR, PIECE, Interval, Measure, moment, to_ms
from jobs.models import GpuActivity, SlotClaim
from usage.models import UsageBucket
from workers.models import GpuReading
from workers.queries import capacity_since

__all__ = [
    "Claim",
    "as_intervals",
    "capacity_intervals",
    "claims_between",
    "claims_from",
    "first_held",
    "last_held",
    "measures_between",
]

Dimension = UsageBucket.Dimension
_RECENT = 2 * DAY


@dataclass(frozen=True, slots=True)
class Claim:
    """A GPU held by a job from `start` to `end`, in milliseconds; an open claim ends at the time of the query."""

    number: int
    user: int
    group: int
    job: int
    host: str
    gpu_model: str
    start: int
    end: int
    trains: tuple[int, int] | None = None

    def subject(self, dimension: int) -> int | str:
        """Return the user, group, job, host or model, depending on the dimension, whose usage includes the claim."""
        subject: int | str = getattr(self, Dimension(dimension).name.lower())
        return subject


def first_held() -> int | None:
    """Return the start of the first claim, in milliseconds. None: no GPU was ever held."""
    first = SlotClaim.objects.aggregate(first=Min("claimed_at"))["first"]
    return None if first is None else to_ms(first)


def last_held() -> int | None:
    """Return the end of the last claim, in milliseconds. None: GPUs are held now, or no GPU was ever held."""
    if SlotClaim.objects.open().exists():
        return None
    last = SlotClaim.objects.aggregate(last=Max("released_at"))["last"]
    return None if last is None else to_ms(last)


def claims_between(start: int, end: int, now: int, until: int) -> list[Claim]:
    """Return the claims that overlap [start, end). until: end of the stored sums.

    Each query filters by one indexed column: with more conditions, the database may choose to scan all claims.
    """
    if end <= until and now - start > _RECENT:
        found = _read(SlotClaim.objects.filter(job_id__in=_jobs_with_usage(start, end)), now)
    else:
        ended = SlotClaim.objects.filter(released_at__gt=moment(start))
        found = [*_read(ended, now), *_read(SlotClaim.objects.open(), now)]
    return [claim for claim in found if claim.start < end and claim.end > start]


def claims_from(start: int, end: int, now: int) -> list[Claim]:
    """Return the claims that began in [start, end)."""
    return _read(SlotClaim.objects.filter(claimed_at__gte=moment(start), claimed_at__lt=moment(end)), now)


def _read(claims: QuerySet[SlotClaim], now: int) -> list[Claim]:
    names = ("pk", "job__owner_id", "job__instance_group_id", "job_id", "slot__host__name", "gpu_model")
    times = ("claimed_at", "released_at", "trains_from", "trained_until")
    rows = claims.order_by().values_list(*names, *times)
    return [_claim(row, now) for row in rows.iterator(chunk_size=5000)]


def _claim(row: tuple[Any, ...], now: int) -> Claim:
    number, user, group, job, host, model, start, end, first, last = row
    trains = None if first is None else (to_ms(first), _ms_or(last, now))
    return Claim(number, user, group, job, host, model, to_ms(start), _ms_or(end, now), trains)


def _ms_or(at: datetime | None, now: int) -> int:
    return now if at is None else to_ms(at)


def _jobs_with_usage(start: int, end: int) -> QuerySet[UsageBucket, int]:
    """Return the jobs with stored usage in [start, end). Filtering claims by their end would read all later claims."""
    last = -(-end // HOUR)
    days = Q(hours=24, start_hour__gte=start // DAY * 24, start_hour__lt=last)
    hours = Q(hours=1, start_hour__gte=start // HOUR, start_hour__lt=last)
    return UsageBucket.objects.filter(days | hours, dimension=Dimension.JOB).values_list("subject", flat=True)


def measures_between(start: int, end: int, now: int) -> dict[int, list[Measure]]:
    """Return the activity of held GPUs by claim: finished sums, and those still being counted."""
    first, last = moment(start - PIECE), moment(end)
    written = GpuActivity.objects.filter(at__gt=first, at__lt=last)
    counted = GpuReading.objects.filter(counted_claim__isnull=False, counted_from__gt=first, counted_from__lt=last)
    rows: Iterable[Any] = chain(
        written.values_list("claim_id", "at", "busy_ms", "idle_ms").iterator(chunk_size=5000),
        counted.values_list("counted_claim", "counted_from", "busy_ms", "idle_ms").iterator(chunk_size=5000),
    )
    found: dict[int, dict[int, Measure]] = defaultdict(dict)
    for claim, at, busy, idle in rows:
        begins = to_ms(at)
        found[claim][begins] = Measure(begins, max(begins + 1, min(begins + PIECE, now)), busy, idle)
    return {claim: list(pieces.values()) for claim, pieces in found.items()}


def as_intervals(
    claims: Iterable[Claim], subject: Callable[[Claim], int | str], measures: Mapping[int, Sequence[Measure]]
) -> Iterator[Interval]:
    for claim in claims:
        own = []
        for measure in measures.get(claim.number, ()):
            # A measure covers only the part of its quarter of an hour in which the claim existed.
            start = min(max(measure.start, claim.start), measure.end - 1)
            end = max(start + 1, min(measure.end, claim.end))
            own.append(Measure(start, end, measure.busy, measure.idle))
        yield Interval(subject(claim), claim.gpu_model, claim.start, claim.end, own, trains=claim.trains)


def capacity_intervals(start: int, end: int) -> list[Interval]:
    """Return the capacity of each host as intervals between its changes."""
    changes: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for point in capacity_since(moment(start), moment(end)):
        changes[point.host_id].append((max(start, to_ms(point.at)), point.slots))
    return [
        Interval(0, "", begins, ends, gpus=slots)
        for steps in changes.values()
        for (begins, slots), (ends, _) in zip(steps, [*steps[1:], (end, 0)], strict=True)
        if slots and begins < ends
    ]
