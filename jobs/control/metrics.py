"""Metric rows for charts, from the records of steps; the job's `metrics.jsonl` is authoritative.

Called by `jobs.control.journals` only.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from tidepool.protocol import ProtocolError, StepRecord, from_json

from core import live
from core.time import iso
from jobs.control.transition import change
from jobs.files.validation_runs import validation_of
from jobs.models import Job, MetricPoint

__all__ = ["store_steps"]

logger = logging.getLogger(__name__)

#: Every other key of a record is a metric.
_FIXED_KEYS = frozenset(StepRecord.__struct_fields__)
_MAX_NAME_LENGTH = 64
_MAX_METRICS_PER_STEP = 100
#: What every database keeps.
_MAX_COUNT = 2**31 - 1


@transaction.atomic
def store_steps(job: Job, records: Sequence[dict[str, Any]]) -> None:
    """Store the records of consecutive steps."""
    points: dict[tuple[str, int], MetricPoint] = {}
    last: StepRecord | None = None
    for values in records:
        step = _parse(job, values)
        if step is not None:
            last = step
            points |= {(point.name, point.step): point for point in _points(job, step, values)}
    if last is None:
        return
    _store_points(job, list(points.values()))
    newest = {point.name: point.value for point in sorted(points.values(), key=lambda point: point.step)}
    change(
        job,
        step=last.step,
        epoch=last.epoch,
        progress=_progress(job, last.progress),
        final_metrics={**job.run.final_metrics, **newest},
        # A run that validates begins anew after a loss, however much it had measured.
        fruitless_starts=0 if validation_of(job) is None else job.run.fruitless_starts,
    )


def _parse(job: Job, values: dict[str, Any]) -> StepRecord | None:
    try:
        step = from_json(StepRecord, values)
        if not (0 <= step.step <= _MAX_COUNT and 0 <= step.epoch <= _MAX_COUNT):
            raise ValueError("its step or epoch is no count")
        datetime.fromtimestamp(step.at, UTC)
        return step
    except (ProtocolError, ValueError, OverflowError) as error:
        logger.warning("job=%s a record of metrics.jsonl is left out: %s", job.pk, error)
        return None


def _points(job: Job, step: StepRecord, values: dict[str, Any]) -> list[MetricPoint]:
    at = datetime.fromtimestamp(step.at, UTC)
    names = [name for name in values if name not in _FIXED_KEYS and len(name) <= _MAX_NAME_LENGTH]
    return [
        MetricPoint(job=job, name=name, step=step.step, epoch=step.epoch, value=_finite(values[name]), at=at)
        for name in names[:_MAX_METRICS_PER_STEP]
        if values[name] is None or _is_number(values[name])
    ]


def _store_points(job: Job, points: Sequence[MetricPoint]) -> None:
    # A step is made again after a restart from a checkpoint: the newer value stays.
    MetricPoint.objects.bulk_create(
        points,
        update_conflicts=True,
        unique_fields=["job", "name", "step"],
        update_fields=["epoch", "value", "at"],
    )
    shown = [
        {"name": point.name, "step": point.step, "epoch": point.epoch, "value": point.value, "at": iso(point.at)}
        for point in points
    ]
    if shown:
        live.publish(live.job_topic(job.pk), "append", {"metrics": shown})


def _progress(job: Job, reported: float | None) -> float | None:
    if job.finished_at is not None or reported is None or not math.isfinite(reported):
        return job.run.progress
    return min(max(reported, 0.0), 1.0)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _finite(value: float | None) -> float | None:
    """Charts draw a gap where a value is not a number, or larger than any."""
    try:
        return float(value) if value is not None and math.isfinite(value) else None
    except OverflowError:
        return None
