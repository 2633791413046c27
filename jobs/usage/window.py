"""A window of usage, read in part from stored sums and in part from the claims."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import methodcaller

from jobs.models import UsageBucket
from jobs.usage.claims import as_intervals, capacity_intervals, claims_between, measures_between
from jobs.usage.grid import MAX_STEPS, Series, changes_within, chosen_step, edges_of
from jobs.usage.intervals import DAY, HOUR, NOTHING, Amount, Interval, summed_up
from jobs.usage.query import Asked
from jobs.usage.rollup import Part, Size, Stored, cover, with_shares
from jobs.usage.stored import Names, StoredSums, names, stored_span

__all__ = ["Band", "Sums", "Timeline", "Window"]

#: What GPUs did is written down by quarters of an hour for so long; before, by hours or days.
_MEASURED = 2 * DAY
Dimension = UsageBucket.Dimension
#: (subject, GPU model, period of prices) -> what was held.
Sums = Mapping[tuple[int | str, str, int], Amount]


@dataclass(frozen=True)
class Band:
    key: int | str | None
    label: str
    #: The mean number of GPUs in each step.
    gpus: Sequence[float]


@dataclass(frozen=True)
class Timeline:
    #: Where the steps begin, and where the last one ends.
    edges: Sequence[int]
    #: Their length; None: each change of an allocation begins one.
    step: int | None
    bands: Sequence[Band]
    held: Sequence[float]
    busy: Sequence[float]
    idle: Sequence[float]
    capacity: Sequence[float]


@dataclass(frozen=True)
class Window:
    """All that is read of the claims, and which sums the rest is read from."""

    asked: Asked
    step: int
    names: Names
    stored: Sequence[Part]
    #: Parts that are read from the claims, with what is in them by subject.
    exact: Sequence[tuple[Part, Sequence[Interval]]]
    #: (beginning, dimension, GPU model) -> what is stored of the cluster as a whole; by part.
    cluster: Sequence[tuple[Part, Mapping[tuple[int, int, str], Amount]]] = field(repr=False)

    @classmethod
    def read(cls, asked: Asked, now: int) -> Window:
        known, span = names(), stored_span()
        step = asked.step or chosen_step(asked.start, asked.end, span.hours_from)
        parts = cover(asked.start, asked.end, span, step if step >= HOUR else 0)
        stored = [part for part in parts if part.size != Size.EXACT]
        sums = StoredSums(asked.dimension, known)
        exact = [(part, _exact(part, sums, span, now)) for part in parts if part.size == Size.EXACT]
        cluster = [(part, sums.of_cluster(part)) for part in stored]
        return cls(asked, step, known, stored, exact, cluster)

    def totals(self, borders: Sequence[int]) -> Sums:
        found: dict[tuple[int | str, str, int], Amount] = {}
        for _, sums in self.cluster:
            for (start, dimension, model), amount in sums.items():
                if dimension == Dimension.GPU_MODEL:
                    _add(found, (0, model, sum(border <= start for border in borders)), amount)
        for part, intervals in self.exact:
            for (_, model, period), amount in summed_up(intervals, part.start, part.end, borders).items():
                _add(found, (0, model, period), amount)
        return found

    def sums(
        self, borders: Sequence[int], readable: Collection[int] | None, most: int | None = None
    ) -> tuple[Sums, int]:
        """The sums of each holder, and their number. most: of whole days only those who may be among so many largest.

        Who holds something outside of whole days is read in any case; of all others, the days are the whole.
        """
        found: dict[tuple[int | str, str, int], Amount] = {}
        sums = StoredSums(self.asked.dimension, self.names)
        allowed = None if readable is None else set(readable)
        for part, intervals in self.exact:
            own = [one for one in intervals if allowed is None or one.subject in allowed]
            for key, amount in summed_up(own, part.start, part.end, borders).items():
                _add(found, key, amount)
        count, days = 0, []
        for part in sorted(self.stored, key=lambda part: part.size):
            wanted: Collection[int] | None = allowed
            if most is not None and part.size == Size.DAY:
                outside = {subject for subject, _, _ in found}
                largest, count = sums.largest(part, most, allowed)
                wanted = {*largest, *map(sums.number, outside)}
            rows = list(sums.by_subject(part, borders, wanted))
            days += [key[0] for key, _ in rows] if count else []
            for key, amount in rows:
                _add(found, key, amount)
        every = {subject for subject, _, _ in found}
        return found, count + len(every - set(days)) if count else len(every)

    def edges(self) -> tuple[list[int], int | None]:
        """As long as there are few changes, each of them is drawn."""
        asked = self.asked
        if asked.step is None and not self.stored:
            pool = capacity_intervals(asked.start, asked.end)
            changes = changes_within(
                [*pool, *(one for _, found in self.exact for one in found)], asked.start, asked.end
            )
            if len(changes) <= MAX_STEPS:
                return changes, None
        return edges_of(asked.start, asked.end, self.step), self.step

    def timeline(self, labels: Mapping[int | str, str]) -> Timeline:
        edges, step = self.edges()
        whole, capacity = Series(edges), Series(edges)
        bands = {subject: Series(edges) for subject in labels}
        for part, sums in self.cluster:
            for (start, dimension, _), amount in sums.items():
                (whole if dimension == Dimension.GPU_MODEL else capacity).add(start, amount)
            for start, subject, milliseconds in StoredSums(self.asked.dimension, self.names).over_time(part, bands):
                bands[subject].add(start, Amount(milliseconds))
        for part, intervals in self.exact:
            for interval in intervals:
                whole.spread(interval, part.start, part.end)
                if interval.subject in bands:
                    bands[interval.subject].spread(interval, part.start, part.end)
            for interval in capacity_intervals(part.start, part.end):
                capacity.spread(interval, part.start, part.end)
        held, busy, idle = whole.means()
        drawn = [Band(subject, labels[subject], series.means()[0]) for subject, series in bands.items()]
        return Timeline(edges, step, [*drawn, *_others(held, drawn)], held, busy, idle, capacity.means()[0])


def _others(held: Sequence[float], bands: Sequence[Band]) -> Iterator[Band]:
    """The band of all that have none of their own, if there are any."""
    own = [sum(values) for values in zip(*(band.gpus for band in bands), strict=True)] or [0.0] * len(held)
    rest = [round(max(0.0, whole - part), 4) for whole, part in zip(held, own, strict=True)]
    if any(rest):
        yield Band(None, "others", rest)


def _add(found: dict[tuple[int | str, str, int], Amount], key: tuple[int | str, str, int], amount: Amount) -> None:
    found[key] = found.get(key, NOTHING) + amount


def _exact(part: Part, sums: StoredSums, span: Stored, now: int) -> list[Interval]:
    subject = methodcaller("subject", sums.dimension)
    claims = claims_between(part.start, part.end, now, span.until)
    if part.start >= span.until - _MEASURED:
        return list(as_intervals(claims, subject, measures_between(part.start, part.end, now)))
    intervals = as_intervals(claims, subject, {})
    size = HOUR if part.start >= span.hours_from else DAY
    return list(with_shares(intervals, sums.shares(part, size), size, part.start, part.end))
