"""Rollup of claims to sums of hours and days. Repeated, late and concurrent calls store the same sums."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from jobs.gpu_time import DAY, HOUR, MINUTE, Amount, Interval, cuts, moment, share_of, to_ms
from jobs.models import GpuActivity
from usage.claim_intervals import (
    Claim,
    as_intervals,
    capacity_intervals,
    claims_between,
    claims_from,
    first_held,
    measures_between,
)
from usage.models import UsageBucket, UsageMark, UsageName
from usage.usage_query import BY

__all__ = ["HOURS_KEPT", "rebuild", "roll_up", "rollup_sums"]

#: Time after the end of an hour until its sums are stored: claims and reports are written with a delay.
_LAG = 10 * MINUTE
#: Retention of hourly sums, in hours. Daily sums are never deleted.
HOURS_KEPT = 40 * 24
#: Retention of `GpuActivity` after the end of the sums.
_ACTIVITY_KEPT = 2 * DAY
_BATCH = 2000
_Key = tuple[int, int | str, str]
#: (start of an hour or day, subject, GPU model) -> GPU time in it.
_Sums = Mapping[_Key, Amount]


@dataclass(frozen=True)
class _Carried:
    """Claims that continue past the end of a day, so that the next day only queries claims by their start."""

    hour: int
    claims: Sequence[Claim]


def roll_up(now: datetime, budget_seconds: float = 2.0) -> bool:
    """Store the sums of all hours that have ended, oldest day first. False: the time budget ended before the work."""
    deadline = time.monotonic() + budget_seconds
    carried: _Carried | None = None
    while True:
        has_more, carried = _roll_up_day(to_ms(now), carried)
        if not has_more or time.monotonic() >= deadline:
            return not has_more


@transaction.atomic
def rebuild(now: datetime) -> None:
    """Compute all sums from the claims again. Busy and idle time stays where its `GpuActivity` was deleted."""
    mark = _locked_mark()
    if mark is None:
        return
    measured_from = mark.until_hour * HOUR - _ACTIVITY_KEPT
    mark.until_hour = mark.from_hour = _first_hour() or mark.from_hour
    mark.save(update_fields=["until_hour", "from_hour"])
    has_more, carried = True, None
    while has_more:
        has_more, carried = _roll_up_day(to_ms(now), carried, measured_from)


@transaction.atomic
def _roll_up_day(now: int, carried: _Carried | None, measured_from: int = 0) -> tuple[bool, _Carried | None]:
    """Store the sums of the next day, or of the hours of the current day that have ended.

    Returns whether there is more to do, and the claims to carry into the next day.
    """
    mark = _locked_mark()
    last = (now - _LAG) // HOUR
    if mark is None or mark.until_hour >= last:
        return False, None
    first, since = mark.until_hour // 24 * 24, mark.until_hour
    until = min(last, first + 24)
    mark.until_hour = until
    mark.hours_from = max(mark.hours_from, (last - HOURS_KEPT) // 24 * 24)
    mark.save(update_fields=["until_hour", "hours_from"])
    if carried is None or carried.hour != first:
        claims = claims_between(first * HOUR, until * HOUR, now, until=0)
    else:
        claims = [*carried.claims, *claims_from(first * HOUR, until * HOUR, now)]
    # Older activity exists only in the stored sums, so they keep it.
    columns = ["held_ms", "training_ms", *(["busy_ms", "idle_ms"] if first * HOUR >= measured_from else [])]
    if until > mark.hours_from:
        _write(claims, HOUR, since * HOUR, until * HOUR, now, columns)
    if until % 24 == 0:
        _write(claims, DAY, first * HOUR, until * HOUR, now, columns)
    UsageBucket.objects.filter(hours=1, start_hour__lt=min(mark.hours_from, first)).delete()
    GpuActivity.objects.filter(at__lt=moment(until * HOUR - _ACTIVITY_KEPT)).delete()
    return until < last, _Carried(until, [claim for claim in claims if claim.end > until * HOUR])


def _locked_mark() -> UsageMark | None:
    """Return the mark, locked and created if necessary; None: no GPU was ever held."""
    first = None if UsageMark.objects.exists() else _first_hour()
    if first is not None:
        UsageMark.objects.get_or_create(id=1, defaults={"from_hour": first, "hours_from": first, "until_hour": first})
    return UsageMark.objects.select_for_update().first()


def _first_hour() -> int | None:
    """Return the first hour of the day of the first claim."""
    first = first_held()
    return None if first is None else first // DAY * 24


def _write(claims: Sequence[Claim], size: int, start: int, end: int, now: int, columns: list[str]) -> None:
    """Store the sums of hours or days, whichever `size` is, in all dimensions."""
    measures = measures_between(start, end, now)
    # Claims are summed once, by job, host and model; the sums of all dimensions are derived from these.
    places = {_finest(claim): place for place, claim in enumerate(claims)}
    intervals = as_intervals(claims, lambda claim: places[_finest(claim)], measures)
    finest = rollup_sums(intervals, start, end, size)
    for dimension in BY.values():
        sums: dict[_Key, Amount] = defaultdict(Amount)
        for (begins, place, model), amount in finest.items():
            sums[begins, claims[int(place)].subject(dimension), model] += amount
        _store(dimension, size, start, end, sums, columns)
    capacity = rollup_sums(capacity_intervals(start, end), start, end, size)
    _store(UsageBucket.Dimension.CAPACITY, size, start, end, capacity, ["held_ms"])


def _finest(claim: Claim) -> tuple[int, str, str]:
    return claim.job, claim.host, claim.gpu_model


def _store(dimension: int, size: int, start: int, end: int, sums: _Sums, columns: list[str]) -> None:
    hours = size // HOUR
    stored = UsageBucket.objects.filter(
        hours=hours, dimension=dimension, start_hour__gte=start // size * hours, start_hour__lt=end // HOUR
    )
    stored.update(held_ms=0)
    named = {name for _, subject, model in sums for name in (subject, model) if isinstance(name, str)}
    UsageName.objects.bulk_create([UsageName(name=name) for name in sorted(named)], ignore_conflicts=True)
    names = dict(UsageName.objects.filter(name__in=named).values_list("name", "pk"))
    rows = [
        UsageBucket(
            hours=hours,
            start_hour=begins // HOUR,
            dimension=dimension,
            subject=names[subject] if isinstance(subject, str) else subject,
            gpu_model_id=names[model],
            held_ms=amount.held,
            busy_ms=amount.busy,
            idle_ms=amount.idle,
            training_ms=amount.training,
        )
        for (begins, subject, model), amount in sorted(sums.items(), key=lambda item: str(item[0]))
    ]
    UsageBucket.objects.bulk_create(
        rows,
        batch_size=_BATCH,
        update_conflicts=True,
        unique_fields=["hours", "dimension", "start_hour", "subject", "gpu_model"],
        update_fields=columns,
    )
    stored.filter(held_ms=0).delete()


def rollup_sums(intervals: Iterable[Interval], start: int, end: int, size: int) -> _Sums:
    """Return the intervals' sums in [start, end) by hour or day, whichever `size` is."""
    held: dict[_Key, Amount] = defaultdict(Amount)
    measured: dict[_Key, Amount] = defaultdict(Amount)
    for interval in intervals:
        for begins, ends in cuts(max(start, interval.start), min(end, interval.end), size):
            part = Amount((ends - begins) * interval.gpus, training=interval.training_in(begins, ends))
            held[begins - begins % size, interval.subject, interval.gpu_model] += part
        for measure in interval.measures:
            for begins, ends in cuts(max(start, measure.start), min(end, measure.end), size):
                key = (begins - begins % size, interval.subject, interval.gpu_model)
                measured[key] += share_of(measure, ends - begins)
    return {key: amount + measured[key] for key, amount in held.items()}
