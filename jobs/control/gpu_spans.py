"""Use of held GPUs over time, and of their hosts by the processes on them, at a resolution that falls with age.

Readings are added to the open span of their GPU, in the row of the newest reading. A completed span is stored, and
`merge_old` merges old spans into longer ones. A span never covers two claims, so its values belong to one training.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from django.db import transaction

from jobs.gpu_time import DAY, HOUR, MINUTE, cuts, moment, to_ms
from jobs.models import GpuSpans

__all__ = [
    "KEPT",
    "SPAN",
    "HostUse",
    "Span",
    "Use",
    "add",
    "from_json",
    "mean_use",
    "merge_old",
    "merged",
    "store",
    "store_all",
    "to_json",
]

#: Milliseconds of a span as it is stored first.
SPAN = 10_000
#: Age in milliseconds from which spans are merged -> length of the merged ones; None: they are deleted.
KEPT: tuple[tuple[int, int, int | None], ...] = (
    (SPAN, HOUR, MINUTE),
    (MINUTE, 2 * DAY, 15 * MINUTE),
    (15 * MINUTE, 90 * DAY, None),
)
#: Rows of at most this many milliseconds are merged in one transaction.
_BATCH = 6 * HOUR


class HostUse(NamedTuple):
    """Mean use of the host by the processes on a GPU: cores, and bytes per second. None: not known."""

    cores: float | None = None
    read_rate: float | None = None
    written_rate: float | None = None
    received_rate: float | None = None
    sent_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A GPU between two moments, in milliseconds since 1970, while one claim held it."""

    claim: int
    start: int
    end: int
    #: Mean utilization; None: the GPU does not report it.
    busy_percent: float | None
    #: Most memory in use at a reading.
    memory_bytes: int | None
    processes: HostUse = field(default_factory=HostUse)


@dataclass(frozen=True, slots=True)
class Use:
    """A reading's use of the GPUs in the time since the one before it."""

    claim: int
    busy_percent: float | None
    memory_bytes: int | None
    processes: HostUse = field(default_factory=HostUse)


def add(span: Span | None, start: int, end: int, use: Use | None) -> tuple[Span | None, Sequence[Span]]:
    """Add a reading that covers [start, end); returns the open span and the completed ones. Pure.

    use: None if the GPU was free, or its use is unknown.
    """
    if use is None:
        return None, [span] if span else []
    finished = []
    for begins, ends in cuts(start, end, SPAN):
        piece = Span(use.claim, begins, ends, use.busy_percent, use.memory_bytes, use.processes)
        if span is not None and _belongs(span, piece, SPAN):
            span = _joined(span, piece)
            continue
        finished += [span] if span else []
        span = piece
    return span, finished


def merged(spans: Iterable[Span], length: int) -> list[Span]:
    """Return the spans in order of time, those of a claim in the same `length` milliseconds merged. Pure."""
    open_spans: dict[int, Span] = {}
    found = []
    for span in sorted(spans, key=lambda one: one.start):
        before = open_spans.get(span.claim)
        if before is not None and _belongs(before, span, length):
            open_spans[span.claim] = _joined(before, span)
            continue
        found += [before] if before else []
        open_spans[span.claim] = span
    return sorted([*found, *open_spans.values()], key=lambda one: (one.start, one.claim))


def _belongs(span: Span, piece: Span, length: int) -> bool:
    are_known = (span.busy_percent is None) == (piece.busy_percent is None)
    return span.claim == piece.claim and span.start // length == piece.start // length and are_known


def _joined(span: Span, piece: Span) -> Span:
    busy = span.busy_percent
    if busy is not None and piece.busy_percent is not None:
        first, second = span.end - span.start, piece.end - piece.start
        busy = (busy * first + piece.busy_percent * second) / (first + second)
    known = [memory for memory in (span.memory_bytes, piece.memory_bytes) if memory is not None]
    return replace(
        span,
        end=max(span.end, piece.end),
        busy_percent=busy,
        memory_bytes=max(known, default=None),
        processes=mean_use([(one.processes, one.end - one.start) for one in (span, piece)]),
    )


def mean_use(parts: Sequence[tuple[HostUse, int]]) -> HostUse:
    """Return the mean over parts of these lengths, of each figure over the parts that know it. Pure."""
    return HostUse(*(_mean([(use[place], length) for use, length in parts]) for place in range(len(HostUse._fields))))


def _mean(parts: Iterable[tuple[float | None, int]]) -> float | None:
    known = [(value, length) for value, length in parts if value is not None]
    whole = sum(length for _, length in known)
    return sum(value * length for value, length in known) / whole if whole else None


def to_json(span: Span) -> list[Any]:
    busy = None if span.busy_percent is None else round(span.busy_percent, 1)
    # Most digits of a rate say nothing: cores have three behind the point, bytes none.
    cores, *bytes_per_second = span.processes
    told = [
        None if cores is None else round(cores, 3),
        *(None if rate is None else round(rate) for rate in bytes_per_second),
    ]
    return [span.claim, span.start, span.end, busy, span.memory_bytes, *([told] if told != [None] * len(told) else [])]


def from_json(values: Sequence[Any]) -> Span:
    """Return a stored span. One of an earlier release does not tell of processes."""
    claim, start, end, busy, memory, *processes = values
    return Span(claim, start, end, busy, memory, HostUse(*processes[0]) if processes else HostUse())


# --- storage ---------------------------------------------------------------------------------------------------------


def merge_old(now: datetime, budget_seconds: float = 2.0) -> None:
    """Merge and delete spans by their age. What the time budget leaves is done by the next call."""
    deadline = time.monotonic() + budget_seconds
    for length, age, into in KEPT:
        border = to_ms(now) - age
        border -= border % (into or length)
        while _merge_some(length, border, into):
            if time.monotonic() >= deadline:
                return


@transaction.atomic
def _merge_some(length: int, border: int, into: int | None) -> bool:
    """Merge the oldest rows of this length that are older than the border. Returns whether there were any."""
    old = GpuSpans.objects.filter(seconds=length // 1000, at__lt=moment(border)).order_by("at")
    if into is None:
        return old.delete()[0] > 0
    if (first := old.first()) is None:
        return False
    start = to_ms(first.at)
    until = min(border, start - start % into + max(into, _BATCH))
    # A concurrent call waits here, and finds nothing.
    rows = list(old.filter(at__lt=moment(until)).select_for_update())
    groups: dict[tuple[int, int], list[Span]] = defaultdict(list)
    for row in rows:
        at = to_ms(row.at)
        groups[row.host_id, at - at % into] += map(from_json, row.spans)
    longer = [_row(host, at, into, merged(spans, into)) for (host, at), spans in groups.items()]
    GpuSpans.objects.bulk_create(longer, batch_size=500)
    GpuSpans.objects.filter(pk__in=[row.pk for row in rows]).delete()
    return bool(rows)


def store(host: int, spans: Iterable[Span]) -> None:
    """Store completed spans of a host's GPUs."""
    store_all({host: spans})


def store_all(spans: Mapping[int, Iterable[Span]]) -> None:
    """Like `store`, for many hosts. spans: host's key -> its spans."""
    GpuSpans.objects.bulk_create([row for host, of_host in spans.items() for row in _rows(host, of_host)])


def _rows(host: int, spans: Iterable[Span]) -> Iterator[GpuSpans]:
    by_time: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        by_time[span.start - span.start % SPAN].append(span)
    for at, together in by_time.items():
        yield _row(host, at, SPAN, together)


def _row(host: int, at: int, length: int, spans: Iterable[Span]) -> GpuSpans:
    return GpuSpans(host_id=host, at=moment(at), seconds=length // 1000, spans=[*map(to_json, spans)])
