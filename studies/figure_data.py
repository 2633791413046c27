"""Reads what the figures of a study's page show, in as many queries for many trials as for few."""

import math
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.template.loader import render_to_string
from django.utils import timezone

from core.charts import job_look
from core.parallel import Axis, drawing
from core.roles import Asking
from core.time import iso
from insights.cluster_trace import Trace, trace_of
from insights.pages.cluster.views import group_figure
from jobs.models import JobRun
from jobs.queries.groups import deployment
from jobs.queries.metrics import thinned_curves
from studies import figures
from studies.figures import ShownTrial
from studies.models import Study, Trial
from studies.rows import goal_of
from studies.space import parse_space

__all__ = ["study_figures"]

#: Points of a curve: twenty share a figure.
_POINTS_OF_CURVE = 150
#: Digits of a place on an axis; static/js/pages/study/parallel.js counts places as equal that differ in later ones.
_PLACE_DIGITS = 6


def study_figures(user: Asking, study: Study) -> dict[str, Any]:
    """Return all figures by name. `trains`: whether curves and GPUs change without news of the study."""
    goal, space = goal_of(study), parse_space(study.space)
    trials = _trials(study)
    drawn, note = figures.drawn_trials(trials, goal)
    finished = sum(trial.counts for trial in trials)
    return {
        "trains": any(trial.state == Trial.State.RUNNING for trial in trials),
        "history": figures.history_figure(trials, goal, study.metric),
        "parallel": _parallel(drawn, figures.parallel_axes(drawn, space, study.metric), note),
        "importance": figures.importance_figure(study.importance, study.importance_trials, finished),
        "slice": figures.slice_figure(drawn, space, study.metric, note),
        "curves": _curves(study, figures.trials_with_curves(trials, goal)),
        "gpus": _gpus(user, study, trials, timezone.now()),
    }


def _trials(study: Study) -> list[ShownTrial]:
    columns = ("number", "state", "value", "values", "job_id", "finished_at")
    return [
        ShownTrial(number, state, value if value is not None and math.isfinite(value) else None, *rest)
        for number, state, value, *rest in study.trials.order_by("number").values_list(*columns)
    ]


def _parallel(drawn: list[ShownTrial], axes: list[Axis], note: str) -> dict[str, Any]:
    rows = [(trial.number, f"Trial {trial.number}") for trial in drawn]
    return {
        "drawing": render_to_string("_parallel.html", {"drawing": drawing(rows, axes)}) if axes else "",
        "axes": [
            {
                "name": axis.column.name,
                "ticks": axis.ticks,
                "scale": axis.scale and {"low": axis.scale.low, "high": axis.scale.high, "log": axis.scale.log},
            }
            for axis in axes
        ],
        "places": [[trial.number, *(_rounded(axis.places[row]) for axis in axes)] for row, trial in enumerate(drawn)],
        "columns": ["Trial", "State", *(axis.column.name for axis in axes)],
        "rows": [
            [trial.number, trial.state.capitalize(), *(axis.column.values[row] for axis in axes)]
            for row, trial in enumerate(drawn)
        ],
        "note": note,
    }


def _rounded(place: float | None) -> float | None:
    return None if place is None else round(place, _PLACE_DIGITS)


def _curves(study: Study, trials: list[ShownTrial]) -> dict[str, Any]:
    jobs = [trial.job for trial in trials if trial.job is not None]
    rows = JobRun.objects.filter(job__in=jobs).values_list("job_id", "progress", "step")
    runs = {job: (progress, step) for job, progress, step in rows}
    made = figures.curves_figure(trials, runs, thinned_curves(jobs, study.metric, _POINTS_OF_CURVE), study.metric)
    for trace in made["data"]:
        trace["line"]["color"] = job_look(trace["meta"]["job"]).colour
    return made


def _gpus(user: Asking, study: Study, trials: list[ShownTrial], now: datetime) -> dict[str, Any]:
    """Return GPUs over time, from the creation of the study until its last trial was over, or now."""
    is_moving = any(trial.finished_at is None and trial.job is not None for trial in trials)
    last = max([study.created_at, *(one.finished_at for one in trials if one.finished_at is not None)])
    end = now if is_moving or not study.is_over else last
    capacity = deployment(study.instance_group.resource_group).slots
    trace = trace_of(user, study.created_at, end, {"job__trial__study": study}, capacity)
    made = group_figure(_by_trial(trace, trials))
    made["layout"]["meta"]["end"] = None if end == now else iso(end)
    return made


def _by_trial(trace: Trace, trials: list[ShownTrial]) -> Trace:
    """Return the trace with the trials' numbers in place of the names of their trainings."""
    numbers = {one.job: f"Trial {one.number}" for one in trials if one.job is not None and one.job in trace.labels}
    bands = [replace(band, label=numbers.get(band.job, band.label)) for band in trace.bands]
    return replace(trace, bands=bands, labels=numbers)
