"""Storage of what an executor parsed from a plain script's output: curves with their sources, and progress.

Called by `jobs.control.journals`, under the job's lock. A curve has one source: a new source starts the curve anew. An
attempt replaces the points of the former ones from its first step on, as it passes them: a script that continues by
itself goes on with its curves, and one that begins anew repeats them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from tidepool.protocol import ObservedStep

from jobs.control.attempt_begins import without_logs
from jobs.control.lifecycle import hosts_of, open_claims, raise_revisions
from jobs.control.series import Point
from jobs.control.transition import change, lock_job
from jobs.models import Job
from jobs.states import TERMINAL

__all__ = ["drop_unpassed", "forget_logs", "observed_columns", "observed_points", "set_log_pattern", "take_pattern"]

#: Largest number of curves per training. Executors send fewer; this limits a faulty one.
_MAX_CURVES = 300


def observed_points(job: Job, steps: Iterable[ObservedStep]) -> tuple[list[Point], dict[str, Any]]:
    """Return the newest point of each name and step, and the resulting sources of all curves.

    Curves whose source changes lose their earlier points.
    """
    points: dict[tuple[str, int], Point] = {}
    sources: dict[str, Any] = dict(job.run.curve_sources)
    for step in steps:
        at = datetime.fromtimestamp(step.at, UTC)
        for name, value in step.metrics.items():
            if name not in sources and len(sources) >= _MAX_CURVES:
                continue
            source = sources.get(name)
            if source is None or (source["kind"], source["where"]) != (step.kind, step.where):
                points = {key: point for key, point in points.items() if key[0] != name}
                job.metrics.filter(name=name).delete()
                job.run.series.pop(name, None)  # the new curve is thinned once it is long itself
                source = {"kind": step.kind, "where": step.where}
            sources[name] = source
            points[name, step.step] = Point(job.pk, name, step.step, step.epoch, value, at)
    if job.run.attempt > 1:
        for name in {name for name, _ in points}:
            numbers = [number for other, number in points if other == name]
            sources[name] = _passed(job, name, sources[name], min(numbers), max(numbers))
    return list(points.values()), sources


def _passed(job: Job, name: str, source: Mapping[str, Any], first: int, last: int) -> dict[str, Any]:
    """Delete points of former attempts between those that come; return the source with the step that is reached."""
    attempt = job.run.attempt
    reached = source["reached"] if source.get("attempt") == attempt else first - 1
    job.metrics.filter(name=name, step__gt=reached, step__lt=last).delete()
    return {**source, "attempt": attempt, "reached": max(reached, last)}


def drop_unpassed(job: Job) -> None:
    """Delete the points of former attempts that the last attempt, which is complete, has not passed."""
    for name, source in job.run.curve_sources.items():
        if job.run.attempt > 1 and source.get("attempt") == job.run.attempt:
            job.metrics.filter(name=name, step__gt=source["reached"]).delete()


def observed_columns(job: Job, steps: Sequence[ObservedStep]) -> dict[str, Any]:
    """Return the columns of the script's progress: from its library, or else its log, or else its files.

    The last lines of a log may be read after the script has ended, which decided on its progress.
    """
    known = {source["kind"] for source in job.run.curve_sources.values()} | {step.kind for step in steps}
    best = next((kind for kind in ("library", "log") if kind in known), None)
    counting = [step for step in steps if best in (None, step.kind)]
    if not counting:
        return {}
    newest = counting[-1]
    # One stream may print steps and another only epochs.
    columns: dict[str, Any] = {"step": max(job.run.step, newest.step), "epoch": max(job.run.epoch, newest.epoch)}
    return columns | ({"progress": _part(newest.progress)} if best and job.state not in TERMINAL else {})


def forget_logs(run_sources: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return the names of curves from logs, and the remaining sources."""
    names = [name for name, source in run_sources.items() if source["kind"] == "log"]
    return names, {name: source for name, source in run_sources.items() if source["kind"] != "log"}


def take_pattern(job: Job, pattern: str) -> None:
    """Store the owner's pattern in a locked job with a new revision, which identifies points of older patterns."""
    change(job, log_pattern=pattern, log_pattern_revision=job.log_pattern_revision + 1)


@transaction.atomic
def set_log_pattern(job_id: int, pattern: str) -> Job:
    """Parse the logs of an unfinished job again with this pattern; "": with the default patterns."""
    job = lock_job(job_id)
    if pattern == job.log_pattern:
        return job
    names, sources = forget_logs(job.run.curve_sources)
    job.metrics.filter(name__in=names).delete()
    metrics = {name: value for name, value in job.run.final_metrics.items() if name not in names}
    take_pattern(job, pattern)
    change(job, curve_sources=sources, final_metrics=metrics, positions=without_logs(job))
    change(job, progress=None, step=0, epoch=0, series={})
    raise_revisions(hosts_of(open_claims(job)))
    return job


def _part(progress: float | None) -> float | None:
    return None if progress is None else min(max(progress, 0.0), 1.0)
