"""The advisor's words about a job, from what its charts show. It reads and writes nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from jobs.insight.advisor import MIN_STEPS, Training, advise, looked_at
from jobs.insight.curves import as_curves, chart_metrics
from jobs.insight.curves_figure import Curve, held_out_part
from jobs.models import AllocationPoint, Job
from jobs.queries.metrics import thinned_points
from jobs.states import TERMINAL

__all__ = ["job_advice"]

_METRICS = frozenset({"loss", "accuracy", "samples_per_second", "learning_rate"})


def job_advice(job: Job, curves: Mapping[str, Curve] | None = None) -> dict[str, Any]:
    """`summary`: what was looked at, or why nothing was. `curves`: those of its page, if they have been read."""
    if curves is None:
        names = [name for name in chart_metrics(job) if held_out_part(name)[1] in _METRICS]
        curves = as_curves({name: thinned_points(job, name) for name in names})
    sizes = list(AllocationPoint.objects.filter(job=job).order_by("at", "id").values_list("at", "slots"))
    training = Training(curves, sizes, job.run.progress, job.state in TERMINAL)
    found = advise(training)
    return {"summary": _summary(training, any_found=bool(found)), "advice": [asdict(advice) for advice in found]}


def _summary(training: Training, *, any_found: bool) -> str:
    count = looked_at(training)
    if any_found:
        return f"From {count} values of the loss and the other curves."
    if count == 0:
        return "It reports no loss, so there is nothing to judge."
    if count < MIN_STEPS:
        return f"{count} steps are too few to judge: the advisor begins after {MIN_STEPS}."
    return f"Nothing stands out in the {count} values of the loss looked at."
