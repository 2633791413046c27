"""Storage of metrics: steps of trainings, values that scripts record, and values read from what they print.

Metric rows are for charts: the `metrics.jsonl` in the job's folder is authoritative. Called by `jobs.control.journals`,
under the job's lock.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import NoneType
from typing import Any, NamedTuple, TypeVar

from django.db import transaction
from django.utils import timezone
from msgspec import structs
from tidepool.protocol import ObservedStep, ProtocolError, RecordedStep, StepRecord, from_json

from core import live
from core.numbers import finite
from core.time import iso
from jobs.control.attempt_begins import tell_begin
from jobs.control.observed_curves import forget_logs, observed_columns, observed_points, take_pattern
from jobs.control.series import Point, store_points
from jobs.control.transition import change, change_all, lock_job
from jobs.files.validation_runs import validation_of
from jobs.models import Job
from jobs.topics import job_topic

__all__ = ["store_observed", "store_read_again", "store_recorded", "store_steps", "store_steps_of"]

logger = logging.getLogger(__name__)

Step = TypeVar("Step", StepRecord, RecordedStep, ObservedStep)

#: Fields of a step's record that are not metrics.
_FIXED_KEYS = frozenset(StepRecord.__struct_fields__)
_MAX_METRIC_NAME_LENGTH = 64
_MAX_METRICS_PER_STEP = 100
#: Largest number of points in one live event.
_POINTS_AT_ONCE = 500


def store_steps(job: Job, records: Sequence[dict[str, Any]]) -> None:
    """Store the records of consecutive steps."""
    store_steps_of([(job, records)])


@transaction.atomic
def store_steps_of(found: Iterable[tuple[Job, Sequence[dict[str, Any]]]]) -> None:
    """Like `store_steps`, for the steps of several jobs, in as many queries."""
    outcomes = {job: outcome for job, records in found if (outcome := _outcome(job, records)) is not None}
    if outcomes:
        series = _store_points({job: outcome.points for job, outcome in outcomes.items()})
        change_all([(job, {**outcome.columns, "series": series[job]}) for job, outcome in outcomes.items()])


class _Outcome(NamedTuple):
    points: Sequence[Point]
    #: Columns of the job and its run.
    columns: Mapping[str, Any]


def _outcome(job: Job, records: Sequence[dict[str, Any]]) -> _Outcome | None:
    """Return what is to be stored of these steps; None: nothing."""
    points: dict[tuple[str, int], Point] = {}
    last: StepRecord | None = None
    for values in filter(None, records):  # nothing is left of a superseded lead's
        step = _parse(job, values, StepRecord)
        if step is not None:
            last = step
            points |= {(point.name, point.step): point for point in _points(job, step, values)}
    if last is None:
        return None
    columns = {
        # The exits of ranks, which name a later step, may have been stored first.
        "step": max(job.run.step, last.step),
        "stepped_at": timezone.now(),
        "epoch": max(job.run.epoch, last.epoch),
        "progress": _progress(job, last.progress),
        "final_metrics": {**job.run.final_metrics, **_newest(points.values())},
        "curve_limits": _limits(job, left_out=max(map(_beyond, records))),
        # A validation run starts over after a loss, however much it had measured.
        "fruitless_starts": 0 if validation_of(job) is None else job.run.fruitless_starts,
    }
    return _Outcome(list(points.values()), columns)


def store_recorded(job: Job, records: Sequence[dict[str, Any]]) -> None:
    """Store metrics that a script without a session has recorded. Its step numbers do not count as progress."""
    points: dict[tuple[str, int], Point] = {}
    for values in filter(None, records):
        recorded = _parse(job, values, RecordedStep)
        if recorded is not None:
            points |= {(point.name, point.step): point for point in _points(job, recorded, values)}
    if points:
        series = _store_points({job: list(points.values())})[job]
        metrics = {**job.run.final_metrics, **_newest(points.values())}
        limits = _limits(job, left_out=max(map(_beyond, records)))
        change(job, final_metrics=metrics, curve_limits=limits, stepped_at=timezone.now(), series=series)


def store_observed(job: Job, records: Sequence[dict[str, Any]]) -> None:
    """Store metrics that a plain script prints and writes, dropping points parsed with an outdated pattern."""
    parsed = [step for values in records if values and (step := _parse(job, values, ObservedStep)) is not None]
    steps = [step for step in parsed if step.kind != "log" or step.revision == job.log_pattern_revision]
    if not steps:
        return
    points, sources = observed_points(job, [_within_limits(step) for step in steps])
    columns: dict[str, Any] = {"series": _store_points({job: points})[job]}
    metrics = {**job.run.final_metrics, **_newest(points)}
    limits = _limits(
        job,
        left_out=max(max(step.left_out, len(step.metrics) - _MAX_METRICS_PER_STEP) for step in steps),
        has_gaps=any(step.has_gaps for step in steps),
    )
    columns |= observed_columns(job, steps)
    positions = tell_begin(job, steps)
    columns["stepped_at"] = timezone.now()
    change(job, curve_sources=sources, curve_limits=limits, final_metrics=metrics, positions=positions, **columns)


@transaction.atomic
def store_read_again(job_id: int, pattern: str, steps: Sequence[ObservedStep]) -> Job:
    """Replace the curves from a finished job's logs by those that the new pattern parses."""
    job = lock_job(job_id)
    names, sources = forget_logs(job.run.curve_sources)
    job.metrics.filter(name__in=names).delete()
    kept = {name: value for name, value in job.run.final_metrics.items() if name not in names}
    take_pattern(job, pattern)
    change(job, curve_sources=sources, final_metrics=kept, series={})
    if steps:
        points, sources = observed_points(job, [_within_limits(step) for step in steps])
        for first in range(0, len(points), _POINTS_AT_ONCE):
            change(job, series=_store_points({job: points[first : first + _POINTS_AT_ONCE]})[job])
        last: dict[str, Any] = {"step": max(step.step for step in steps), "epoch": max(step.epoch for step in steps)}
        change(job, curve_sources=sources, final_metrics={**kept, **_newest(points)}, **last)
    return job


def _within_limits(step: ObservedStep) -> ObservedStep:
    names = [name for name in step.metrics if 0 < len(name) <= _MAX_METRIC_NAME_LENGTH][:_MAX_METRICS_PER_STEP]
    return structs.replace(step, metrics={name: finite(step.metrics[name]) for name in names})


def _newest(points: Iterable[Point]) -> dict[str, float | None]:
    return {point.name: point.value for point in sorted(points, key=lambda point: point.step)}


def _parse(job: Job, values: dict[str, Any], kind: type[Step]) -> Step | None:
    try:
        return from_json(kind, values)
    except ProtocolError as error:
        logger.warning("job=%s dropped a record of metrics: %s", job.pk, error)
        return None


def _names(values: dict[str, Any]) -> list[str]:
    return [name for name in values if name not in _FIXED_KEYS and type(values[name]) in (int, float, NoneType)]


def _beyond(values: dict[str, Any]) -> int:
    """Return the number of metrics that are not stored of a record."""
    names = _names(values)
    short = sum(len(name) <= _MAX_METRIC_NAME_LENGTH for name in names)
    return len(names) - min(short, _MAX_METRICS_PER_STEP)


def _limits(job: Job, *, left_out: int, has_gaps: bool = False) -> dict[str, Any]:
    before = job.run.curve_limits
    names = max(before.get("names", 0), left_out)
    return {**before, **({"names": names} if names > 0 else {}), **({"gaps": True} if has_gaps else {})}


def _points(job: Job, step: StepRecord | RecordedStep, values: dict[str, Any]) -> list[Point]:
    at, epoch = datetime.fromtimestamp(step.at, UTC), step.epoch if isinstance(step, StepRecord) else 0
    names = [name for name in _names(values) if len(name) <= _MAX_METRIC_NAME_LENGTH]
    return [Point(job.pk, name, step.step, epoch, finite(values[name]), at) for name in names[:_MAX_METRICS_PER_STEP]]


def _store_points(found: Mapping[Job, Sequence[Point]]) -> dict[Job, dict[str, Any]]:
    """Store and publish points, also those of which no row is left; returns `JobRun.series` of each job."""
    series = store_points(found)
    live.publish_all(
        "append", {job_topic(job.pk): {"metrics": [*map(_shown, points)]} for job, points in found.items() if points}
    )
    return series


def _shown(point: Point) -> dict[str, Any]:
    return {"name": point.name, "step": point.step, "epoch": point.epoch, "value": point.value, "at": iso(point.at)}


def _progress(job: Job, reported: float | None) -> float | None:
    if job.finished_at is not None or reported is None or not math.isfinite(reported):
        return job.run.progress
    return min(max(reported, 0.0), 1.0)
