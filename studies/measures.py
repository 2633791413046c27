"""Values of a trial's metric, read from what its training has reported or written."""

import json
import math
import os
import statistics
from datetime import datetime
from typing import Any, TypeGuard

from django.db.models import DurationField, ExpressionWrapper, F, Max, Min, Q, Sum
from django.db.models.functions import Coalesce
from tidepool.nni_environment import REPORTS_FILE
from tidepool.safe_open import open_regular

from jobs.files.exact_metrics import exact_values, has_exact_values
from jobs.files.job_folder import job_folder
from jobs.models import Job, MetricPoint, SlotClaim
from jobs.queries.metrics import metric_names
from studies.models import Study, Trial

__all__ = ["current_value", "final_value", "gpu_seconds", "measured_at", "measured_by_results", "reported_names"]

#: File that scripts for WMLA write: a list of objects with values by name, of which the last is the result.
_VALUES_FILE = "val_dict_list.json"
_MAX_BYTES = 8 * 1024**2
#: Number of complete trials, the newest ones, whose results say how many a whole training reports.
_COUNTED_TRIALS = 20


def measured_at(job: Job, metric: str, progress: float) -> float | None:
    """Return the first value of the metric after this part of the training; None: there is none yet.

    The progress of a value is that of its step: steps before now count in proportion. NaN stands for no number.
    """
    now, step = job.run.progress, job.run.step
    if now is None or now < progress or not now:
        return None
    return _first_since(job, metric, math.ceil(step * progress / now))


def measured_by_results(job: Job, study: Study, progress: float) -> float | None:
    """Return what `measured_at` returns, for a plain script that reports its results to `nni`.

    A whole training reports as many intermediate results as complete trials have. None, too, before one is complete.
    """
    if job.run.curve_sources.get(study.metric, {}).get("where") != REPORTS_FILE:
        return None
    complete = study.trials.filter(state=Trial.State.COMPLETE).order_by("-number").values_list("job", flat=True)
    points = MetricPoint.objects.filter(job__in=list(complete[:_COUNTED_TRIALS]), name=study.metric)
    counts = points.order_by().values("job").annotate(count=Max("step")).values_list("count", flat=True)
    if not counts:
        return None
    return _first_since(job, study.metric, max(1, math.ceil(statistics.median(counts) * progress)))


def _first_since(job: Job, metric: str, step: int) -> float | None:
    if has_exact_values(job, metric):
        first = next((exact for exact in exact_values(job, metric) if exact.step >= step), None)
        return None if first is None else math.nan if first.value is None else first.value
    points = MetricPoint.objects.filter(job=job, name=metric, step__gte=step)
    found = points.order_by("step").values_list("value", flat=True).first()
    if found is None and not points.exists():
        return None
    return math.nan if found is None else found


def final_value(job: Job, study: Study) -> float | None:
    """Return the value of the study's metric for a training that is over; None: it has none."""
    written = _written_values(job)
    values = [row[study.metric] for row in written if _is_number(row.get(study.metric))]
    told = job.run.final_metrics.get(study.metric)
    # Scripts for WMLA write their result into the file; the loss that their training reports may be another one.
    is_told = _is_number(told) and not (study.is_for_wmla and values)
    last: float | None = told if is_told else values[-1] if values else None
    if study.value_of == Study.ValueOf.LAST:
        return last
    best = min if study.goal == Study.Goal.MINIMIZE else max
    bounds = MetricPoint.objects.filter(job=job, name=study.metric).aggregate(least=Min("value"), most=Max("value"))
    seen = [bounds["least" if study.goal == Study.Goal.MINIMIZE else "most"], last, *values]
    return best((value for value in seen if value is not None and math.isfinite(value)), default=last)


def current_value(job: Job, study: Study) -> float | None:
    """Return the value of the study's metric for a training that may still run; None: it has none that is a number."""
    value = final_value(job, study)
    if value is None:
        points = MetricPoint.objects.filter(job=job, name=study.metric)
        value = points.order_by("-step").values_list("value", flat=True).first()
    return value if value is not None and math.isfinite(value) else None


def reported_names(job: Job) -> list[str]:
    """Return the names of the metrics that the training has reported or written."""
    written = {name for row in _written_values(job) for name, value in row.items() if _is_number(value)}
    return sorted({*metric_names(job), *job.run.final_metrics, *written} - {"steps"})


def gpu_seconds(study: Study, now: datetime) -> float:
    """Return the time that the study's trainings have held GPUs, in GPU-seconds."""
    held = ExpressionWrapper(Coalesce(F("released_at"), now) - F("claimed_at"), output_field=DurationField())
    own = Q(job__trial__study=study) | Q(job__plugin_call__study=study)
    total = SlotClaim.objects.filter(own).order_by().aggregate(total=Sum(held))["total"]
    return total.total_seconds() if total else 0.0


def _written_values(job: Job) -> list[dict[str, Any]]:
    """Return the rows of the file for WMLA; [] if there is none, or it is not such a list."""
    descriptor = open_regular(job_folder(job).attempt(job.run.attempt) / _VALUES_FILE)
    if descriptor is None:
        return []
    with os.fdopen(descriptor, "rb") as stream:
        content = stream.read(_MAX_BYTES + 1)
    try:
        rows = json.loads(content) if len(content) <= _MAX_BYTES else []
    except (ValueError, RecursionError):
        return []  # the training's page shows the file as it is
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
