"""What a page works out when it is asked: how long a job still takes, why it has what it has, what would change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from jobs.control.snapshots import snapshot
from jobs.files.validation_runs import validation_of
from jobs.insight.eta import Change, Eta, StepTime, eta
from jobs.insight.why_messages import remedy_text, terms
from jobs.models import AllocationPoint, Job, MetricPoint
from jobs.queries.jobs import visible_jobs
from jobs.states import ACTIVE, JobState
from scheduling.remedies import Remedy, remedies

__all__ = ["time_left", "why"]

#: More say nothing about its speed now.
_STEPS = 200
_CHANGES = 20


def time_left(job: Job) -> dict[str, Any]:
    found = _eta(job)
    return {"earliest_seconds": found.earliest, "latest_seconds": found.latest, "text": found.text}


def why(job: Job, user: User) -> dict[str, Any]:
    """The sentence, its arithmetic, and what the scheduler would decide if something were otherwise."""
    rows = terms(job.reason_params)
    found = _remedies(job)
    numbers = [row.job for row in rows if row.job is not None]
    numbers += [remedy.value for remedy in found if remedy.kind == "end"]
    seen = set(visible_jobs(user).filter(pk__in=numbers).values_list("pk", flat=True))
    return {
        "text": job.reason_text,
        "terms": [{**asdict(row), "job": row.job if row.job in seen else None} for row in rows],
        "remedies": [_remedy_as_json(remedy, seen) for remedy in found],
    }


def _remedy_as_json(remedy: Remedy, seen: set[int]) -> dict[str, Any]:
    hidden = remedy.kind == "end" and remedy.value not in seen
    return {
        "kind": remedy.kind,
        "value": None if hidden else remedy.value,
        "target": remedy.target,
        "starts_now": remedy.starts_now,
        "text": remedy_text(remedy),
    }


def _remedies(job: Job) -> Sequence[Remedy]:
    if job.state not in ACTIVE:
        return ()
    now = snapshot(timezone.now())
    is_decided = any(view.id == job.pk for view in now.jobs)
    return remedies(now, job.pk) if is_decided else ()


def _eta(job: Job) -> Eta:
    if job.state != JobState.RUNNING:
        return Eta(None, None, "")
    points = AllocationPoint.objects.filter(job=job).order_by("-at", "-id").values_list("at", "slots")[:_CHANGES]
    changes = [Change(at.timestamp(), slots) for at, slots in reversed(points)]
    if validation_of(job) is not None:
        return eta(_step_times(job), changes, job.run.progress or 0.0, counted="reports of how much is measured")
    return eta(_step_times(job), changes, job.run.progress)


def _step_times(job: Job) -> list[StepTime]:
    names = sorted(job.run.final_metrics, key=lambda name: (name != "loss", name))
    if not names:
        return []
    newest = MetricPoint.objects.filter(job=job, name=names[0], step__lte=job.run.step).order_by("-step")
    return [StepTime(step, at.timestamp()) for step, at in reversed(newest.values_list("step", "at")[:_STEPS])]
