"""Metrics of a job: names, series, and curves thinned for charts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import BigIntegerField, Case, Count, F, Max, Min, Q, QuerySet, Value, When, Window
from django.db.models.expressions import OrderBy
from django.db.models.functions import Mod, RowNumber

from core.live import without_nan
from core.time import iso
from jobs.files.exact_metrics import exact_values, has_exact_values
from jobs.models import Job, MetricPoint

__all__ = [
    "MAX_POINTS",
    "Curve",
    "Sample",
    "metric_names",
    "metric_points_as_json",
    "metric_series",
    "thinned_curves",
    "thinned_points",
]

#: Largest number of points in a line: more are not visible and slow down each redraw.
MAX_POINTS = 600


class Sample(NamedTuple):
    step: int
    #: Value after the step; None: not a number, shown as a gap.
    value: float | None
    at: datetime | None = None
    epoch: int = 0


@dataclass(frozen=True)
class Curve:
    #: Points to draw: the least and the greatest of each span of steps, which hold each spike. A gap counts as least.
    samples: Sequence[Sample] = ()
    #: Ratio of stored points to samples; 1: all points are present.
    every: int = 1
    #: Points at even distances, which statistics need, where they differ from `samples`.
    even_samples: Sequence[Sample] | None = None

    @property
    def even(self) -> Sequence[Sample]:
        return self.samples if self.even_samples is None else self.even_samples


def thinned_points(job: Job, name: str, most: int = MAX_POINTS) -> Curve:
    """Return the least and the greatest value of each span of steps, and the last value."""
    return thinned_curves([job.pk], name, most).get(job.pk, Curve())


def thinned_curves(jobs: Collection[int], name: str, most: int = MAX_POINTS) -> dict[int, Curve]:
    """Return job -> its curve, thinned to about `most` points each, in two queries; none for a job without points."""
    points = MetricPoint.objects.filter(job__in=jobs, name=name)
    counts = {
        row["job"]: row
        for row in points.order_by()
        .values("job")
        .annotate(count=Count("pk"), even=Count("pk", filter=Q(is_even=True)), first=Min("step"), last=Max("step"))
    }
    if not counts:
        return {}
    every = {job: -(-row["count"] // most) for job, row in counts.items()}
    if all(each == 1 for each in every.values()) and all(row["even"] == row["count"] for row in counts.values()):
        samples: dict[int, list[Sample]] = {job: [] for job in counts}
        for job, *row in points.order_by("job", "step").values_list("job", *Sample._fields):
            samples[job].append(Sample(*row))
        return {job: Curve(found) for job, found in samples.items()}
    return _thinned(points, counts, every, most)


def _thinned(
    points: QuerySet[MetricPoint], counts: Mapping[int, Mapping[str, Any]], every: Mapping[int, int], most: int
) -> dict[int, Curve]:
    # Steps between two values: 1 if each step has a value, an epoch's steps if each epoch has one.
    reach = {job: row["last"] - row["first"] + 1 for job, row in counts.items()}
    length = {job: -(-reach[job] // row["count"]) * every[job] for job, row in counts.items()}
    # Thinned rows are only in part at even distances.
    apart = {job: -(-reach[job] // max(1, row["even"])) for job, row in counts.items()}
    spaced = {job: apart[job] * -(-row["even"] // most) for job, row in counts.items()}
    beyond_first = F("step") - _by_job({job: row["first"] for job, row in counts.items()})
    points = points.annotate(
        span=beyond_first / _by_job({job: 2 * length[job] for job in counts}),
        into_span=Mod(beyond_first, _by_job({job: max(1, spaced[job]) for job in counts})),
    )
    points = points.annotate(
        from_least=_place_in_span(F("value").asc(nulls_first=True), F("step").asc()),
        from_greatest=_place_in_span(F("value").desc(nulls_last=True), F("step").desc()),
    ).filter(
        Q(from_least=1)
        | Q(from_greatest=1)
        | Q(is_even=True, into_span__lt=_by_job(apart))
        | Q(step=_by_job({job: row["last"] for job, row in counts.items()}))
    )
    drawn: dict[int, list[Sample]] = {job: [] for job in counts}
    even: dict[int, list[Sample]] = {job: [] for job in counts}
    fields = ("job", "from_least", "from_greatest", "into_span", "is_even", *Sample._fields)
    for job, from_least, from_greatest, into_span, is_even, *row in points.order_by("job", "step").values_list(*fields):
        sample = Sample(*row)
        is_last = sample.step == counts[job]["last"]
        if every[job] == 1 or 1 in (from_least, from_greatest) or is_last:
            drawn[job].append(sample)
        # Uneven steps leave more points in some spans than in others.
        if is_last or (is_even and into_span < apart[job] and len(even[job]) < 2 * most):
            even[job].append(sample)
    return {job: Curve(drawn[job], every[job], even[job]) for job in counts}


def _place_in_span(*order: OrderBy) -> Window:
    return Window(RowNumber(), partition_by=[F("job"), F("span")], order_by=order)


def _by_job(numbers: Mapping[int, int]) -> Case:
    """Return the number of each row's job, as a column of a query of points."""
    whens = [When(job=job, then=Value(number)) for job, number in numbers.items()]
    return Case(*whens, output_field=BigIntegerField())


def metric_names(job: Job) -> list[str]:
    return list(MetricPoint.objects.filter(job=job).order_by("name").values_list("name", flat=True).distinct())


def metric_series(job: Job, name: str, every: int | None = None) -> list[dict[str, Any]]:
    """Return every `every`-th value of a metric and the last one; without `every`, few enough for a chart."""
    if every is None:
        return metric_points_as_json(name, list(thinned_points(job, name).samples))
    kept: list[Sample] = []
    last: Sample | None = None
    for place, sample in enumerate(_samples(job, name)):
        last = sample
        if place % every == 0:
            kept.append(sample)
    if last is not None and kept[-1] != last:
        kept.append(last)
    return metric_points_as_json(name, kept)


def _samples(job: Job, name: str) -> Iterable[Sample]:
    """Return all values of a metric: those of a long elastic training from its files, as rows have only some."""
    if has_exact_values(job, name):
        return (Sample(exact.step, exact.value, exact.at, exact.epoch) for exact in exact_values(job, name))
    points = MetricPoint.objects.filter(job=job, name=name).order_by("step")
    return (Sample(*row) for row in points.values_list(*Sample._fields))


def metric_points_as_json(name: str, samples: Sequence[Sample]) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = without_nan(
        [
            {"name": name, "step": sample.step, "epoch": sample.epoch, "value": sample.value, "at": iso(sample.at)}
            for sample in samples
        ]
    )
    return points
