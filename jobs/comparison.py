"""Several jobs side by side: their curves, and what they were told and what came out, differences marked."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobs.curves import Thinned, thinned_points
from jobs.models import AllocationPoint, Job
from webapp.lib.comparison import Line, Point, Quantity

__all__ = ["MAX_JOBS", "MIN_JOBS", "Compared", "compared_metrics", "compared_settings", "quantities_of"]

MIN_JOBS, MAX_JOBS = 2, 8
#: Title of a row -> the metrics that it may show: of each job the first that it has.
_ROWS = {
    "Loss": ("loss",),
    "Test loss": ("test_loss", "val_loss"),
    "Accuracy (%)": ("accuracy",),
    "Test accuracy (%)": ("test_accuracy", "val_accuracy"),
    "Samples / s": ("samples_per_second",),
    "Learning rate": ("learning_rate",),
}


@dataclass(frozen=True)
class Compared:
    """A line of a table: one value per job, in the order of the jobs."""

    name: str
    values: list[str]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


def quantities_of(jobs: Sequence[Job]) -> list[Quantity]:
    """What is drawn: the metrics that these jobs reported, and the GPUs that they had."""
    metrics = {job.pk: _metrics(job) for job in jobs}
    rows = [
        Quantity(title, [Line(job.pk, job.name, _points(job, metrics[job.pk].get(title))) for job in jobs])
        for title in _ROWS
    ]
    gpus = [Line(job.pk, job.name, _gpus(job, metrics[job.pk].get("Loss"))) for job in jobs]
    return [*rows, Quantity("GPUs", gpus, is_stepped=True)]


def compared_settings(jobs: Sequence[Job]) -> list[Compared]:
    """What they were told: their settings, then every parameter that one of them has."""
    settings: dict[str, Callable[[Job], object]] = {
        "Model": lambda job: f"{job.model.model.name}, version {job.model.number}",
        "Dataset": lambda job: f"{job.dataset.dataset.name}, version {job.dataset.number}",
        "Instance group": lambda job: job.instance_group.name,
        "Priority": lambda job: job.priority,
        "Fewest GPUs": lambda job: job.min_slots,
        "Most GPUs": lambda job: job.max_slots,
        "Effective batch size": lambda job: job.effective_batch_size,
        "Exactness": lambda job: job.exactness,
        "Seed": lambda job: job.seed,
    }
    lines = [Compared(name, [_word(value(job)) for job in jobs]) for name, value in settings.items()]
    parameters = [{**job.model.parameters, **job.parameters} for job in jobs]
    return lines + _union(parameters)


def compared_metrics(jobs: Sequence[Job]) -> list[Compared]:
    """What came out, as far as it has: steps, and the last value of each metric."""
    steps = Compared("Steps", [str(job.step) for job in jobs])
    return [steps, *_union([job.final_metrics for job in jobs])]


def _union(values: Sequence[Mapping[str, Any]]) -> list[Compared]:
    names = sorted({name for one in values for name in one})
    return [Compared(name, [_word(one.get(name)) for one in values]) for name in names]


def _word(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.5g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _metrics(job: Job) -> dict[str, Thinned]:
    """By the row that shows it."""
    chosen = {title: next((name for name in names if name in job.final_metrics), "") for title, names in _ROWS.items()}
    return {title: thinned_points(job, name) for title, name in chosen.items() if name}


def _points(job: Job, metric: Thinned | None) -> list[Point]:
    start = job.started_at or job.submitted_at
    return [
        Point(point["step"], (datetime.fromisoformat(point["at"]) - start).total_seconds(), point["value"])
        for point in (metric.points if metric else [])
    ]


def _gpus(job: Job, metric: Thinned | None) -> list[Point]:
    """Changes are known by their time: their step is that of the last point drawn before."""
    steps = _points(job, metric)
    times = [point.seconds for point in steps]
    start = job.started_at or job.submitted_at
    points = []
    for change in AllocationPoint.objects.filter(job=job).order_by("at", "id"):
        seconds = (change.at - start).total_seconds()
        place = bisect_right(times, seconds)
        points.append(Point(steps[place - 1].step if place else 0, seconds, float(change.slots)))
    if points and steps and steps[-1].seconds > points[-1].seconds:
        points.append(Point(steps[-1].step, steps[-1].seconds, points[-1].value))
    return points
