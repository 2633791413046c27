"""Reads the sums of hours and days: a window's parts that need not be read from the claims."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Case, IntegerField, QuerySet, Sum, Value, When

from jobs.models import UsageBucket, UsageMark, UsageName
from jobs.usage.intervals import DAY, HOUR, Amount
from jobs.usage.rollup import Part, Size, Stored

__all__ = ["Names", "StoredSums", "names", "stored_span"]

Dimension = UsageBucket.Dimension
_NAMED = (Dimension.HOST, Dimension.GPU_MODEL)
_SUMS = {"held": Sum("held_ms"), "busy": Sum("busy_ms"), "idle": Sum("idle_ms")}


def stored_span() -> Stored:
    """Up to when claims are added up."""
    mark = UsageMark.objects.first()
    if mark is None:
        return Stored(0, 0, 0)
    return Stored(mark.from_hour * HOUR, mark.hours_from * HOUR, mark.until_hour * HOUR)


@dataclass(frozen=True)
class Names:
    """Of hosts and GPU models, by number and back."""

    by_number: Mapping[int, str]
    by_name: Mapping[str, int]


def names() -> Names:
    found = dict(UsageName.objects.values_list("pk", "name"))
    return Names(found, {name: number for number, name in found.items()})


@dataclass(frozen=True)
class StoredSums:
    dimension: Dimension
    names: Names

    def by_subject(
        self, part: Part, borders: Sequence[int], subjects: Collection[int] | None
    ) -> Iterator[tuple[tuple[int | str, str, int], Amount]]:
        """(subject, GPU model, period) -> what it held; of some subjects only, if these are given."""
        rows = _rows(part, self.dimension)
        if subjects is not None:
            rows = rows.filter(subject__in=subjects)
        grouped = rows.annotate(period=_period(borders)).values("subject", "gpu_model_id", "period").order_by()
        values = grouped.annotate(**_SUMS).values_list("subject", "gpu_model_id", "period", *_SUMS)
        for subject, model, period, *sums in values.iterator(chunk_size=5000):
            yield (self._subject(subject), self.names.by_number[model], period), Amount(*map(int, sums))

    def largest(self, part: Part, most: int, subjects: Collection[int] | None) -> tuple[list[int], int]:
        """Those that held the most, and how many held anything at all."""
        rows = _rows(part, self.dimension)
        if subjects is not None:
            rows = rows.filter(subject__in=subjects)
        by_subject = rows.values("subject").order_by()
        order = by_subject.annotate(held=Sum("held_ms")).order_by("-held", "subject")
        return list(order.values_list("subject", flat=True)[:most]), by_subject.distinct().count()

    def number(self, subject: int | str) -> int:
        """By which it is stored; 0, which nobody has, where it is not yet."""
        return self.names.by_name.get(subject, 0) if isinstance(subject, str) else subject

    def of_cluster(self, part: Part) -> dict[tuple[int, int, str], Amount]:
        """(beginning, dimension, GPU model) -> what was held of each model, and the capacity of the pool."""
        rows = UsageBucket.objects.filter(
            **_span(part), dimension__in=(Dimension.GPU_MODEL, Dimension.CAPACITY)
        ).values_list("start_hour", "dimension", "gpu_model_id", "held_ms", "busy_ms", "idle_ms")
        return {
            (hour * HOUR, dimension, self.names.by_number[model]): Amount(*amount)
            for hour, dimension, model, *amount in rows
        }

    def over_time(self, part: Part, subjects: Iterable[int | str]) -> Iterator[tuple[int, int | str, int]]:
        """When, who, and for how long."""
        numbers = [self.number(subject) for subject in subjects]
        rows = _rows(part, self.dimension).filter(subject__in=numbers).values("start_hour", "subject").order_by()
        for hour, subject, held in rows.annotate(held=Sum("held_ms")).values_list("start_hour", "subject", "held"):
            yield hour * HOUR, self._subject(subject), int(held)

    def shares(self, part: Part, size: int) -> dict[tuple[int, int | str, str], Amount]:
        """What is stored of the hours or days that the part lies in, for what of it was busy and idle."""
        first, last = part.start // size * size, -(-part.end // size) * size
        whole = Part(Size.DAY if size == DAY else Size.HOUR, first, last)
        rows = _rows(whole, self.dimension).values_list(
            "start_hour", "subject", "gpu_model_id", "held_ms", "busy_ms", "idle_ms"
        )
        return {
            (hour * HOUR, self._subject(subject), self.names.by_number[model]): Amount(*amount)
            for hour, subject, model, *amount in rows
        }

    def _subject(self, number: int) -> int | str:
        return self.names.by_number[number] if self.dimension in _NAMED else number


def _rows(part: Part, dimension: int) -> QuerySet[UsageBucket]:
    return UsageBucket.objects.filter(**_span(part), dimension=dimension)


def _span(part: Part) -> dict[str, int]:
    return {"hours": part.size, "start_hour__gte": part.start // HOUR, "start_hour__lt": part.end // HOUR}


def _period(borders: Sequence[int]) -> Case | Value:
    """How many borders lie before it: prices change at midnight, so never within an hour or a day."""
    cases = [When(start_hour__lt=border // HOUR, then=Value(number)) for number, border in enumerate(borders)]
    last = Value(len(borders), IntegerField())
    return Case(*cases, default=last, output_field=IntegerField()) if cases else last
