"""Points of a job's metrics, thinned to as many as a chart can show."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Max, Min, Q
from django.db.models.functions import Mod

from core.live import without_nan
from core.time import iso
from jobs.models import Job, MetricPoint

__all__ = ["MAX_POINTS", "Thinned", "metric_as_json", "thinned_points"]

#: More points than this in one line are not seen and cost time on each redraw.
MAX_POINTS = 600


@dataclass(frozen=True)
class Thinned:
    """Points of one metric as the API and live events show them."""

    points: list[dict[str, Any]] = field(default_factory=list)
    #: One in so many is here; 1: all.
    every: int = 1


def thinned_points(job: Job, name: str, most: int = MAX_POINTS) -> Thinned:
    """Of each span of steps the first value that is there, and the last value of all."""
    points = MetricPoint.objects.filter(job=job, name=name)
    seen = points.aggregate(count=Count("pk"), first=Min("step"), last=Max("step"))
    if not seen["count"]:
        return Thinned()
    every = -(-seen["count"] // most)
    if every > 1:
        # The distance of two values: 1 where each step has one, an epoch's steps where each epoch has one.
        distance = -(-(seen["last"] - seen["first"] + 1) // seen["count"])
        into_span = Mod(F("step") - seen["first"], every * distance)
        points = points.annotate(into_span=into_span).filter(Q(into_span__lt=distance) | Q(step=seen["last"]))
    rows = points.order_by("step").values_list("step", "epoch", "value", "at")[: 2 * most]
    return Thinned([metric_as_json(name, *row) for row in rows], every)


def metric_as_json(name: str, step: int, epoch: int, value: float | None, at: datetime) -> dict[str, Any]:
    point: dict[str, Any] = without_nan({"name": name, "step": step, "epoch": epoch, "value": value, "at": iso(at)})
    return point
