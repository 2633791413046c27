"""Usage within a window, read from stored sums of hours and days, and from the claims at its edges."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from operator import methodcaller

from django.db.models import Case, IntegerField, QuerySet, Sum, Value, When

from jobs.gpu_time import DAY, HOUR, Amount, Interval, Measure, Sums, cuts, summed_up
from usage.claim_intervals import as_intervals, capacity_intervals, claims_between, measures_between
from usage.models import UsageBucket, UsageMark, UsageName
from usage.time_grid import MAX_STEPS, Series, changes_within, chosen_step, edges_of
from usage.usage_query import ReportQuery

__all__ = ["Band", "Part", "Size", "StoredSpan", "Timeline", "Window", "cover", "stored_span"]

#: Retention of `GpuActivity` by quarters of an hour. Older activity exists only in hourly and daily sums.
_ACTIVITY_KEPT = 2 * DAY
Dimension = UsageBucket.Dimension
_AMOUNT = ("held_ms", "busy_ms", "idle_ms", "training_ms")


class Size(IntEnum):
    """The source of a part of a window: sums of whole days or hours, or the claims themselves."""

    EXACT = 0
    HOUR = 1
    DAY = 24


@dataclass(frozen=True, slots=True)
class Part:
    size: Size
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StoredSpan:
    """Range of the stored sums in milliseconds: hourly from `hours_from`, daily from `days_from`, both to `until`."""

    days_from: int
    hours_from: int
    until: int


@dataclass(frozen=True)
class Band:
    key: int | str | None
    label: str
    #: Mean number of GPUs in each step.
    gpus: Sequence[float]


@dataclass(frozen=True)
class Timeline:
    #: Starts of the steps, and the end of the last one, in milliseconds.
    edges: Sequence[int]
    #: Length of a step in milliseconds; None: each change of an allocation begins a step.
    step: int | None
    bands: Sequence[Band]
    held: Sequence[float]
    training: Sequence[float]
    busy: Sequence[float]
    idle: Sequence[float]
    capacity: Sequence[float]

    @property
    def beginnings(self) -> Sequence[int]:
        """Starts of the steps, in milliseconds."""
        return self.edges[:-1]

    @property
    def step_seconds(self) -> int | None:
        return None if self.step is None else self.step // 1000


@dataclass(frozen=True)
class StoredSums:
    """Stored sums of hours and days in one dimension."""

    dimension: Dimension
    #: Id -> name of the hosts and GPU models.
    names: Mapping[int, str]

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {name: number for number, name in self.names.items()}

    def number(self, subject: int | str) -> int:
        """Return the stored id of a subject; 0, which no row has, for a name that has no id yet."""
        return self._numbers.get(subject, 0) if isinstance(subject, str) else subject

    def _subject(self, number: int) -> int | str:
        return self.names[number] if self.dimension in (Dimension.HOST, Dimension.GPU_MODEL) else number

    def _rows(self, part: Part, subjects: Collection[int] | None = None) -> QuerySet[UsageBucket]:
        """Return the rows of a part, unordered. subjects: None: all."""
        rows = UsageBucket.objects.filter(**_in_part(part), dimension=self.dimension).order_by()
        return rows if subjects is None else rows.filter(subject__in=subjects)

    def by_subject(
        self, part: Part, borders: Sequence[int], subjects: Collection[int] | None
    ) -> Iterator[tuple[tuple[int | str, str, int], Amount]]:
        """Yield (subject, GPU model, period of prices) with the GPU time. subjects: None: all."""
        sums = {f"total_{name}": Sum(name) for name in _AMOUNT}
        grouped = (
            self._rows(part, subjects).annotate(period=_period(borders)).values("subject", "gpu_model_id", "period")
        )
        values = grouped.annotate(**sums).values_list("subject", "gpu_model_id", "period", *sums)
        for subject, model, period, *amount in values.iterator(chunk_size=5000):
            yield (self._subject(subject), self.names[model], period), Amount(*map(int, amount))

    def largest(self, part: Part, most: int, subjects: Collection[int] | None) -> tuple[list[int], int]:
        """Return the subjects with the most GPU time, largest first, and the number of all subjects."""
        by_subject = self._rows(part, subjects).values("subject")
        order = by_subject.annotate(held=Sum("held_ms")).order_by("-held", "subject")
        return list(order.values_list("subject", flat=True)[:most]), by_subject.distinct().count()

    def of_cluster(self, part: Part) -> dict[tuple[int, int, str], Amount]:
        """Return (start, dimension, GPU model) -> GPU time of each model, and the capacity of the pool."""
        rows = UsageBucket.objects.filter(**_in_part(part), dimension__in=(Dimension.GPU_MODEL, Dimension.CAPACITY))
        return {
            (hour * HOUR, dimension, self.names[model]): Amount(*amount)
            for hour, dimension, model, *amount in rows.values_list("start_hour", "dimension", "gpu_model_id", *_AMOUNT)
        }

    def over_time(self, part: Part, subjects: Iterable[int | str]) -> Iterator[tuple[int, int | str, int]]:
        """Yield (start, subject, milliseconds held)."""
        rows = self._rows(part, [*map(self.number, subjects)]).values("start_hour", "subject")
        for hour, subject, held in rows.annotate(held=Sum("held_ms")).values_list("start_hour", "subject", "held"):
            yield hour * HOUR, self._subject(subject), int(held)

    def with_shares(self, intervals: Iterable[Interval], part: Part, size: Size) -> Iterator[Interval]:
        """Yield the intervals with their share of the busy and idle time of each stored hour or day."""
        length = size * HOUR
        whole_part = Part(size, part.start // length * length, -(-part.end // length) * length)
        sums = {
            (hour * HOUR, self._subject(subject), self.names[model]): Amount(*amount)
            for hour, subject, model, *amount in self._rows(whole_part).values_list(
                "start_hour", "subject", "gpu_model_id", *_AMOUNT
            )
        }
        for interval in intervals:
            measures = []
            for begins, ends in cuts(max(part.start, interval.start), min(part.end, interval.end), length):
                whole = sums.get((begins - begins % length, interval.subject, interval.gpu_model))
                if whole is not None and whole.busy + whole.idle:
                    own = ends - begins
                    measures.append(
                        Measure(begins, ends, whole.busy * own // whole.held, whole.idle * own // whole.held)
                    )
            yield replace(interval, measures=measures)


@dataclass(frozen=True)
class Window:
    """Claims and stored sums of a window, read once for all questions of a report."""

    query: ReportQuery
    step: int
    sums_by: StoredSums
    stored: Sequence[Part]
    #: Parts that are read from the claims, with their intervals.
    exact: Sequence[tuple[Part, Sequence[Interval]]]
    #: Stored parts with the sums of the whole cluster: (start, dimension, GPU model) -> GPU time.
    cluster: Sequence[tuple[Part, Mapping[tuple[int, int, str], Amount]]] = field(repr=False)

    @classmethod
    def read(cls, query: ReportQuery, now: int) -> "Window":
        sums = StoredSums(query.dimension, dict(UsageName.objects.values_list("pk", "name")))
        span = stored_span()
        step = query.step or chosen_step(query.start, query.end, span.hours_from)
        parts = cover(query.start, query.end, span, step if step >= HOUR else 0)
        stored = [part for part in parts if part.size != Size.EXACT]
        exact = [(part, _exact(part, sums, span, now)) for part in parts if part.size == Size.EXACT]
        return cls(query, step, sums, stored, exact, [(part, sums.of_cluster(part)) for part in stored])

    def totals(self, borders: Sequence[int]) -> Sums:
        found: dict[tuple[int | str, str, int], Amount] = defaultdict(Amount)
        for _, sums in self.cluster:
            for (start, dimension, model), amount in sums.items():
                if dimension == Dimension.GPU_MODEL:
                    found[0, model, sum(border <= start for border in borders)] += amount
        for part, intervals in self.exact:
            for (_, model, period), amount in summed_up(intervals, part.start, part.end, borders).items():
                found[0, model, period] += amount
        return found

    def sums(
        self, borders: Sequence[int], readable: Collection[int] | None, most: int | None = None
    ) -> tuple[Sums, int]:
        """Return the sums of each holder, and the number of holders. most: for whole days, only read possible members
        of the largest `most`.

        Who holds something outside of whole days is read in any case; of all others, the days are the whole.
        """
        found: dict[tuple[int | str, str, int], Amount] = defaultdict(Amount)
        allowed = None if readable is None else set(readable)
        for part, intervals in self.exact:
            own = [one for one in intervals if allowed is None or one.subject in allowed]
            for key, amount in summed_up(own, part.start, part.end, borders).items():
                found[key] += amount
        count, days = 0, []
        for part in sorted(self.stored, key=lambda part: part.size):
            wanted: Collection[int] | None = allowed
            if most is not None and part.size == Size.DAY:
                largest, count = self.sums_by.largest(part, most, allowed)
                wanted = {*largest, *(self.sums_by.number(subject) for subject, _, _ in found)}
            for key, amount in self.sums_by.by_subject(part, borders, wanted):
                found[key] += amount
                days += [key[0]] if count else []
        every = {subject for subject, _, _ in found}
        return found, count + len(every - set(days)) if count else len(every)

    def edges(self) -> tuple[list[int], int | None]:
        """Return the edges and length of the steps. Each change is an edge if there are few enough of them."""
        query = self.query
        if query.step is None and not self.stored:
            pool = capacity_intervals(query.start, query.end)
            held = (one for _, found in self.exact for one in found)
            changes = changes_within([*pool, *held], query.start, query.end)
            if len(changes) <= MAX_STEPS:
                return changes, None
        return edges_of(query.start, query.end, self.step), self.step

    def timeline(self, labels: Mapping[int | str, str]) -> Timeline:
        edges, step = self.edges()
        whole, capacity = Series(edges), Series(edges)
        bands = {subject: Series(edges) for subject in labels}
        for part, sums in self.cluster:
            for (start, dimension, _), amount in sums.items():
                (whole if dimension == Dimension.GPU_MODEL else capacity).add(start, amount)
            for start, subject, milliseconds in self.sums_by.over_time(part, bands):
                bands[subject].add(start, Amount(milliseconds))
        for part, intervals in self.exact:
            for interval in intervals:
                whole.spread(interval, part.start, part.end)
                if interval.subject in bands:
                    bands[interval.subject].spread(interval, part.start, part.end)
            for interval in capacity_intervals(part.start, part.end):
                capacity.spread(interval, part.start, part.end)
        held, busy, idle, training = whole.means()
        drawn = [Band(subject, labels[subject], series.means()[0]) for subject, series in bands.items()]
        own = [sum(values) for values in zip(*(band.gpus for band in drawn), strict=True)] or [0.0] * len(held)
        rest = [round(max(0.0, all_ - part), 4) for all_, part in zip(held, own, strict=True)]
        if any(rest):
            drawn.append(Band(None, "others", rest))
        return Timeline(edges, step, drawn, held, training, busy, idle, capacity.means()[0])


def stored_span() -> StoredSpan:
    """Return the range of the stored sums."""
    mark = UsageMark.objects.first()
    if mark is None:
        return StoredSpan(0, 0, 0)
    return StoredSpan(mark.from_hour * HOUR, mark.hours_from * HOUR, mark.until_hour * HOUR)


def cover(start: int, end: int, stored: StoredSpan, largest: int) -> list[Part]:
    """Return parts that cover [start, end): stored sums up to the size `largest`, and the claims for the rest."""
    parts = [Part(Size.EXACT, start, end)] if start < end else []
    if largest >= DAY:
        parts = _replaced(parts, Size.DAY, stored.days_from, stored.until)
    if largest >= HOUR:
        parts = _replaced(parts, Size.HOUR, stored.hours_from, stored.until)
    return parts


def _replaced(parts: Iterable[Part], size: Size, stored_from: int, until: int) -> list[Part]:
    """Return the parts with whole stored hours or days cut out of the exact ones."""
    found: list[Part] = []
    length = size * HOUR
    for part in parts:
        first = -(-max(part.start, stored_from) // length) * length
        last = min(part.end, until) // length * length
        if part.size != Size.EXACT or first >= last:
            found.append(part)
            continue
        edges = [(Size.EXACT, part.start, first), (size, first, last), (Size.EXACT, last, part.end)]
        found += [Part(kind, begins, ends) for kind, begins, ends in edges if begins < ends]
    return found


def _exact(part: Part, sums: StoredSums, span: StoredSpan, now: int) -> list[Interval]:
    subject = methodcaller("subject", sums.dimension)
    claims = claims_between(part.start, part.end, now, span.until)
    if part.start >= span.until - _ACTIVITY_KEPT:
        return list(as_intervals(claims, subject, measures_between(part.start, part.end, now)))
    size = Size.HOUR if part.start >= span.hours_from else Size.DAY
    return list(sums.with_shares(as_intervals(claims, subject, {}), part, size))


def _in_part(part: Part) -> dict[str, int]:
    return {"hours": part.size, "start_hour__gte": part.start // HOUR, "start_hour__lt": part.end // HOUR}


def _period(borders: Sequence[int]) -> Case | Value:
    """Return the period of prices of a row. Prices change at midnight, so never within an hour or a day."""
    cases = [When(start_hour__lt=border // HOUR, then=Value(number)) for number, border in enumerate(borders)]
    last = Value(len(borders), IntegerField())
    return Case(*cases, default=last, output_field=IntegerField()) if cases else last
