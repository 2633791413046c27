"""Hours and days that are added up beforehand, and the parts of a window made of them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from jobs.usage.intervals import DAY, HOUR, NOTHING, Amount, Interval, Measure, cuts, share_of

__all__ = ["Part", "Size", "Stored", "Sums", "counted_for", "cover", "rolled", "with_shares"]


class Size(IntEnum):
    """The source of a part of a window: sums of whole days or hours, or the claims themselves."""

    EXACT = 0
    HOUR = 1
    DAY = 24


_Key = tuple[int, int | str, str]
Sums = Mapping[_Key, Amount]


@dataclass(frozen=True, slots=True)
class Part:
    size: Size
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Stored:
    """Sums of hours are stored from `hours_from` to `until`, of days for each day that is over by then."""

    days_from: int
    hours_from: int
    until: int


def rolled(intervals: Iterable[Interval], start: int, end: int, size: int) -> Sums:
    """(beginning of an hour or day, subject, GPU model) -> what was held in it."""
    held: dict[_Key, int] = defaultdict(int)
    told: dict[_Key, Amount] = {}
    for interval in intervals:
        for begins, ends in cuts(max(start, interval.start), min(end, interval.end), size):
            held[(begins - begins % size, interval.subject, interval.gpu_model)] += (ends - begins) * interval.gpus
        for measure in interval.measures:
            for begins, ends in cuts(max(start, measure.start), min(end, measure.end), size):
                key = (begins - begins % size, interval.subject, interval.gpu_model)
                told[key] = told.get(key, NOTHING) + share_of(measure, ends - begins)
    return {key: Amount(milliseconds) + told.get(key, NOTHING) for key, milliseconds in held.items()}


def counted_for(sums: Sums, subjects: Sequence[int | str]) -> Sums:
    """The same by others: each subject is a place in `subjects`, where it says whom it counts for."""
    found: dict[_Key, Amount] = {}
    for (start, place, model), amount in sums.items():
        key = (start, subjects[int(place)], model)
        found[key] = found.get(key, NOTHING) + amount
    return found


def cover(start: int, end: int, stored: Stored, largest: int) -> list[Part]:
    """[start, end) without gaps, from whole stored sums of at most `largest`; what is left is read from the claims."""
    parts = [Part(Size.EXACT, start, end)] if start < end else []
    if largest >= DAY:
        parts = _replaced(parts, Size.DAY, DAY, stored.days_from, stored.until)
    if largest >= HOUR:
        parts = _replaced(parts, Size.HOUR, HOUR, stored.hours_from, stored.until)
    return parts


def with_shares(
    intervals: Iterable[Interval],
    sums: Sums,
    size: int,
    start: int,
    end: int,
) -> Iterator[Interval]:
    """Intervals that know what was busy and idle only from stored sums: of each hour or day, the share they held."""
    for interval in intervals:
        measures = []
        for begins, ends in cuts(max(start, interval.start), min(end, interval.end), size):
            whole = sums.get((begins - begins % size, interval.subject, interval.gpu_model))
            if whole is not None and whole.busy + whole.idle:
                part = ends - begins
                measures.append(Measure(begins, ends, whole.busy * part // whole.held, whole.idle * part // whole.held))
        yield replace(interval, measures=measures)


def _replaced(parts: Iterable[Part], size: Size, length: int, stored_from: int, until: int) -> list[Part]:
    """Of the parts that are still to be read from the claims, whole hours or days taken from what is stored."""
    found: list[Part] = []
    for part in parts:
        first = -(-max(part.start, stored_from) // length) * length
        last = min(part.end, until) // length * length
        if part.size != Size.EXACT or first >= last:
            found.append(part)
            continue
        edges = [(Size.EXACT, part.start, first), (size, first, last), (Size.EXACT, last, part.end)]
        found += [Part(kind, begins, ends) for kind, begins, ends in edges if begins < ends]
    return found
