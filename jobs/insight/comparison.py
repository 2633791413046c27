"""Several jobs side by side: their curves, and what they were told and what came out, differences marked.

`static/js/pages/compare.js` adds new points to the lines, by the same rules, and fetches what it cannot know: a line
that begins, GPUs that change hands, a training that starts again.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from core.live import job_topic
from core.time import iso
from jobs.insight.comparison_figure import Line, Point, Quantity
from jobs.models import AllocationPoint, Job
from jobs.queries.metrics import Thinned, thinned_points

__all__ = [
    "MAX_JOBS",
    "MIN_JOBS",
    "Compared",
    "compared_live",
    "compared_metrics",
    "compared_settings",
    "quantities_of",
]

MIN_JOBS, MAX_JOBS = 2, 8
#: Points of one quantity, over all jobs: a browser redraws them while the jobs train.
_MAX_POINTS = 1200
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


def compared_live(jobs: Sequence[Job], seqs: Mapping[str, int]) -> dict[str, Any]:
    """What the page follows: the topic of each job, and what of it is not in the figure."""
    return {
        "jobs": [
            {
                "job": job.pk,
                "seq": seqs[job_topic(job.pk)],
                "state": job.state,
                "attempt": job.run.attempt,
                "started_at": iso(job.started_at),
                "submitted_at": iso(job.submitted_at),
            }
            for job in jobs
        ],
        "rows": {name: title for title, names in _ROWS.items() for name in names},
    }


def quantities_of(jobs: Sequence[Job]) -> list[Quantity]:
    """What is drawn: the metrics that these jobs reported, and the GPUs that they had."""
    most = _MAX_POINTS // len(jobs)
    metrics = {job.pk: _metrics(job, most) for job in jobs}
    rows = [Quantity(title, [_line(job, metrics[job.pk].get(title), most) for job in jobs]) for title in _ROWS]
    gpus = [Line(job.pk, job.name, _gpus(job, metrics[job.pk])) for job in jobs]
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
    steps = Compared("Steps", [str(job.run.step) for job in jobs])
    return [steps, *_union([job.run.final_metrics for job in jobs])]


def _union(values: Sequence[Mapping[str, Any]]) -> list[Compared]:
    names = sorted({name for one in values for name in one})
    return [Compared(name, [_word(one.get(name)) for one in values]) for name in names]


def _word(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.5g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _metrics(job: Job, most: int) -> dict[str, tuple[str, Thinned]]:
    """By the row that shows it: its name, and its points."""
    chosen = {
        title: next((name for name in names if name in job.run.final_metrics), "") for title, names in _ROWS.items()
    }
    return {title: (name, thinned_points(job, name, most)) for title, name in chosen.items() if name}


def _line(job: Job, metric: tuple[str, Thinned] | None, most: int) -> Line:
    if metric is None:
        return Line(job.pk, job.name)
    name, thinned = metric
    return Line(job.pk, job.name, _points(job, thinned), metric=name, every=thinned.every, most=most)


def _points(job: Job, metric: Thinned) -> list[Point]:
    return [
        Point(point["step"], _seconds(job, datetime.fromisoformat(point["at"])), point["value"])
        for point in metric.points
    ]


def _gpus(job: Job, metrics: Mapping[str, tuple[str, Thinned]]) -> list[Point]:
    """Changes are known by their time: their step is that of the last point drawn before."""
    steps = max((_points(job, thinned) for _, thinned in metrics.values()), key=len, default=[])
    times = [point.seconds for point in steps]
    points = []
    for change in AllocationPoint.objects.filter(job=job).order_by("at", "id"):
        seconds = _seconds(job, change.at)
        place = bisect_right(times, seconds)
        points.append(Point(steps[place - 1].step if place else 0, seconds, float(change.slots)))
    return points


def _seconds(job: Job, at: datetime) -> float:
    return (at - (job.started_at or job.submitted_at)).total_seconds()
