"""Curves of a job's metrics, for charts and the advisor."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jobs.insight.curves_figure import Curve, Sample, rows_of
from jobs.models import Job
from jobs.queries.metrics import Thinned, thinned_points

__all__ = ["as_curves", "chart_metrics", "thinned_metrics"]

#: Scripts may report as many metrics as they like; a chart has few lines, and a page little time.
MAX_METRICS = 12


def chart_metrics(job: Job) -> list[str]:
    """Names of the metrics that it has reported, those first that a chart shows first."""
    rows, left_out = rows_of(job.run.final_metrics)
    return [*(name for row in rows for name in row.lines), *left_out][:MAX_METRICS]


def thinned_metrics(job: Job) -> dict[str, Thinned]:
    """By name; two queries for each of at most `MAX_METRICS`."""
    return {name: thinned_points(job, name) for name in chart_metrics(job)}


def as_curves(metrics: Mapping[str, Thinned]) -> dict[str, Curve]:
    return {
        name: Curve([_sample(point) for point in thinned.points], thinned.every) for name, thinned in metrics.items()
    }


def _sample(point: Mapping[str, Any]) -> Sample:
    return Sample(point["step"], point["value"], datetime.fromisoformat(point["at"]))
