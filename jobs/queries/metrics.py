"""Metrics of a job: names, series, and curves thinned for charts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Count, F, Max, Min, Q
from django.db.models.functions import Mod

from core.live import without_nan
from core.time import iso
from jobs.models import Job, MetricPoint

__all__ = ["MAX_POINTS", "Curve", "Sample", "metric_names", "metric_points_as_json", "metric_series", "thinned_points"]

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
    samples: Sequence[Sample] = ()
    #: Ratio of stored points to samples; 1: all points are present.
    every: int = 1


def thinned_points(job: Job, name: str, most: int = MAX_POINTS) -> Curve:
    """Return the first value of each span of steps, and the last value."""
    points = MetricPoint.objects.filter(job=job, name=name)
    seen = points.aggregate(count=Count("pk"), first=Min("step"), last=Max("step"))
    if not seen["count"]:
        return Curve()
    every = -(-seen["count"] // most)
    if every > 1:
        # Steps between two values: 1 if each step has a value, an epoch's steps if each epoch has one.
        distance = -(-(seen["last"] - seen["first"] + 1) // seen["count"])
        into_span = Mod(F("step") - seen["first"], every * distance)
        points = points.annotate(into_span=into_span).filter(Q(into_span__lt=distance) | Q(step=seen["last"]))
    return Curve([Sample(*row) for row in points.order_by("step").values_list(*Sample._fields)[: 2 * most]], every)


def metric_names(job: Job) -> list[str]:
    return list(MetricPoint.objects.filter(job=job).order_by("name").values_list("name", flat=True).distinct())


def metric_series(job: Job, name: str, every: int | None = None) -> list[dict[str, Any]]:
    """Return every `every`-th value of a metric and the last one; without `every`, few enough for a chart."""
    if every is None:
        kept = list(thinned_points(job, name).samples)
    else:
        points = MetricPoint.objects.filter(job=job, name=name).order_by("step")
        rows = [Sample(*row) for row in points.values_list(*Sample._fields)]
        kept = rows[::every]
        if rows and kept[-1] != rows[-1]:
            kept.append(rows[-1])
    return metric_points_as_json(name, kept)


def metric_points_as_json(name: str, samples: Sequence[Sample]) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = without_nan(
        [
            {"name": name, "step": sample.step, "epoch": sample.epoch, "value": sample.value, "at": iso(sample.at)}
            for sample in samples
        ]
    )
    return points
