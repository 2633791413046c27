"""Compare several jobs: a Plotly figure for each quantity, with a colour for each training, and tables of settings and
results with differences marked.

`static/js/pages/compare.js` draws the figures over steps, time since each training's start, epochs or samples. It adds
new points to the lines by the rules of this module, and fetches newer figures when a line begins, GPUs change or a
training starts again.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from typing import Any

import plotly.graph_objects as go
from django.utils.text import slugify

from core.charts import figure, job_look
from core.time import iso
from insights.differences import results_of, settings_of
from insights.ran_differences import ran_columns
from jobs.models import AllocationPoint, Job
from jobs.queries.curves import HELD_OUT, distinct_labels, held_out_part, held_out_title, metric_label
from jobs.queries.metrics import thinned_points
from jobs.topics import job_topic

__all__ = [
    "GPUS",
    "HEADLINES",
    "MAX_JOBS",
    "Compared",
    "Line",
    "Point",
    "Quantity",
    "compared_live",
    "compared_metrics",
    "compared_settings",
    "comparison_figures",
    "quantities_of",
    "titles_of",
]

MAX_JOBS = 8
#: Highest number of points of one quantity, over all jobs: a browser redraws them while the jobs train.
_MAX_POINTS = 1200
#: Highest number of figures: scripts may report any number of metrics.
_MAX_QUANTITIES = 12
GPUS = "GPUs"
#: Metric -> title of its figure, in this order. A metric on held-out data follows the metric that it belongs to, and
#: figures of other metrics come last.
_TITLES = {
    "loss": "Loss",
    "accuracy": "Accuracy (%)",
    "samples_per_second": "Samples / s",
    "learning_rate": "Learning rate",
}
#: Metrics that trainings report on held-out data as well.
_JUDGED = ("loss", "accuracy")
#: Titles of the figures that judge a training, on data of each kind.
HEADLINES = frozenset(held_out_title(data, _TITLES[metric]) for data in ("", *HELD_OUT.values()) for metric in _JUDGED)
#: Metrics for which a logarithmic axis makes no sense.
_LINEAR = {"accuracy", "samples_per_second"}
_DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True)
class Compared:
    """Row of a table: one value per job, in the order of the jobs."""

    name: str
    values: list[str]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


@dataclass(frozen=True)
class Point:
    step: int
    #: Seconds since the training's first start.
    seconds: float
    #: Value of the metric; None: not a number, drawn as a gap.
    value: float | None
    epoch: int = 0


@dataclass(frozen=True)
class Line:
    job: int
    label: str
    points: Sequence[Point] = field(default_factory=list)
    #: Name of the metric; empty for GPUs, and while the job has reported none.
    metric: str = ""
    #: One point in `every` is in the line, and at most `most` are drawn.
    every: int = 1
    most: int = 0


@dataclass(frozen=True)
class Quantity:
    title: str
    lines: Sequence[Line]
    #: Names of the metrics that the figure may show.
    names: Sequence[str] = ()
    #: Whether the value holds until the next point.
    is_stepped: bool = False


def compared_live(jobs: Sequence[Job], seqs: Mapping[str, int]) -> dict[str, Any]:
    """Return each job's topic, and the fields that the page follows besides the figures."""
    return {
        "jobs": [
            {
                "job": job.pk,
                "label": job.name,
                "look": {"letter": job_look(job.pk).letter, "colour": job_look(job.pk).colour},
                "samples_per_step": job.samples_per_step,
                "seq": seqs[job_topic(job.pk)],
                "state": job.state,
                "attempt": job.run.attempt,
                "started_at": iso(job.started_at),
                "submitted_at": iso(job.submitted_at),
            }
            for job in jobs
        ]
    }


def compared_settings(jobs: Sequence[Job]) -> list[Compared]:
    """Return code, environment and settings, then every parameter that any of the jobs has."""
    return [Compared(column.name, column.words) for column in [*ran_columns(jobs), *settings_of(jobs)]]


def compared_metrics(jobs: Sequence[Job]) -> list[Compared]:
    """Return the results so far: steps, and the last value of each metric."""
    return [Compared(column.name, column.words) for column in results_of(jobs)]


def quantities_of(jobs: Sequence[Job]) -> list[Quantity]:
    """Return the quantities to draw: metrics that these jobs reported, and their GPUs."""
    most = _MAX_POINTS // len(jobs)
    rows = _rows(jobs)
    metrics = {job.pk: _lines(job, rows, most) for job in jobs}
    drawn = [
        Quantity(title, [metrics[job.pk].get(title, Line(job.pk, job.name)) for job in jobs], names)
        for title, names in rows.items()
    ]
    gpus = [Line(job.pk, job.name, _gpus(job, metrics[job.pk].values())) for job in jobs]
    return [*drawn, Quantity(GPUS, gpus, is_stepped=True)]


def titles_of(jobs: Sequence[Job]) -> list[str]:
    """Return the titles of the quantities that any of these jobs has, without reading a point."""
    reported = {name for job in jobs for name in job.run.final_metrics}
    has_started = any(job.started_at for job in jobs)
    return [title for title, names in _rows(jobs).items() if reported.intersection(names)] + [GPUS] * has_started


def _rows(jobs: Sequence[Job]) -> dict[str, tuple[str, ...]]:
    """Return the metrics to draw by title, the usual ones first.

    Metrics share a figure if they have the same title and no job has two of them.
    """
    by_job = [set(job.run.final_metrics) for job in jobs]
    titles = {name: _title(name) for name in sorted(set[str]().union(*by_job), key=_place)}
    for names in by_job:
        titles |= distinct_labels({name: titles[name] for name in sorted(names)})
    rows: dict[str, tuple[str, ...]] = {}
    for name, title in titles.items():
        rows[title] = (*rows.get(title, ()), name)
    return dict(list(rows.items())[: _MAX_QUANTITIES - 1])


def _title(name: str) -> str:
    data, metric = held_out_part(name)
    if metric in (_JUDGED if data else _TITLES):
        return held_out_title(data, _TITLES[metric])
    return metric_label(name)


def _place(name: str) -> tuple[int, str, str]:
    """Return what a metric's figure is sorted by."""
    data, metric = held_out_part(name)
    order = list(_TITLES)
    if metric in (_JUDGED if data else order):
        return order.index(metric), data, name
    return len(order), "", name


def _lines(job: Job, rows: Mapping[str, Sequence[str]], most: int) -> dict[str, Line]:
    """Return the lines of the job's metrics, by title."""
    found = {}
    for title, names in rows.items():
        if name := next((name for name in names if name in job.run.final_metrics), ""):
            curve = thinned_points(job, name, most)
            points = [Point(one.step, _seconds(job, one.at), one.value, one.epoch) for one in curve.samples if one.at]
            found[title] = Line(job.pk, job.name, points, metric=name, every=curve.every, most=most)
    return found


def _gpus(job: Job, lines: Iterable[Line]) -> list[Point]:
    """Return the job's GPUs over time. Each change has the step of the last point drawn before it."""
    steps = max((line.points for line in lines), key=len, default=())
    times = [point.seconds for point in steps]
    points = []
    for change in AllocationPoint.objects.filter(job=job).order_by("at", "id"):
        seconds = _seconds(job, change.at)
        place = bisect_right(times, seconds)
        points.append(Point(steps[place - 1].step if place else 0, seconds, float(change.slots)))
    return points


def _seconds(job: Job, at: datetime) -> float:
    return (at - (job.started_at or job.submitted_at)).total_seconds()


def comparison_figures(quantities: Sequence[Quantity]) -> list[dict[str, Any]]:
    """Return a figure for each quantity that has at least one point."""
    shown = [quantity for quantity in quantities if any(line.points for line in quantity.lines)]
    dashes = _dashes({line.job for quantity in shown for line in quantity.lines})
    return [_figure(quantity, number, dashes) for number, quantity in enumerate(shown, start=1)]


def _figure(quantity: Quantity, number: int, dashes: Mapping[int, str]) -> dict[str, Any]:
    is_count = quantity.is_stepped or quantity.title == "Samples / s"
    return figure(
        [_trace(line, quantity, dashes[line.job]) for line in quantity.lines],
        margin={"l": 44, "r": 16, "t": 8, "b": 36},
        xaxis={"zeroline": False, "nticks": 6, "showspikes": True, "spikemode": "across"},
        yaxis={"zeroline": False, "nticks": 5, "rangemode": "tozero" if is_count else "normal"},
        hovermode="x unified",
        meta={
            "kind": "comparison",
            "title": quantity.title,
            # Name of the figure's files and of its anchor on the page.
            "name": slugify(quantity.title) or f"metric-{number}",
            "names": quantity.names,
            "may_be_log": not quantity.is_stepped
            and not any(held_out_part(name)[1] in _LINEAR for name in quantity.names),
            # Held-out metrics are measured once an epoch and need no smoothing.
            "may_be_smooth": not quantity.is_stepped
            and quantity.title != "Learning rate"
            and not any(held_out_part(name)[0] for name in quantity.names),
        },
    )


def _dashes(jobs: set[int]) -> dict[int, str]:
    """Return a dash pattern for each job; jobs of the same colour get different ones."""
    used: Counter[str] = Counter()
    dashes = {}
    for job in sorted(jobs):
        colour = job_look(job).colour
        dashes[job] = _DASHES[used[colour] % len(_DASHES)]
        used[colour] += 1
    return dashes


def _trace(line: Line, quantity: Quantity, dash: str) -> go.Scatter:
    look = job_look(line.job)
    return go.Scatter(
        x=[point.step for point in line.points],
        y=[point.value for point in line.points],
        customdata=[[round(point.seconds, 1), point.epoch] for point in line.points],
        # Plotly interprets markup in names, and users choose the names of jobs.
        name=escape(f"{look.letter} · {line.label}", quote=False),
        meta={
            "job": line.job,
            "label": line.label,
            "metric": line.metric,
            "every": line.every,
            "most": line.most,
        },
        mode="lines",
        line={"color": look.colour, "width": 2, "dash": dash, "shape": "hv" if quantity.is_stepped else "linear"},
        connectgaps=False,
        hovertemplate="%{y:.4g}",
    )
