"""Figures of a study's page, made from its trials. Pure: nothing here queries.

`static/js/pages/study/figures.js` draws them, in the colours of the theme. `meta` of a figure has the words beside it:
`note`, `empty` (why there is nothing to draw), and columns and rows of its table.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any

import plotly.graph_objects as go

from core.charts import figure
from core.parallel import Axis, Column, axes_of, word
from core.parameters import Scalar
from core.templatetags.tidepool import figure as number_words
from core.text import plural
from jobs.queries.metrics import Curve
from studies.importance import FEWEST_TRIALS
from studies.models import Trial
from studies.space import Choice, Normal, Space, Uniform, varied
from studies.trials import Goal

__all__ = [
    "MOST_CURVES",
    "ShownTrial",
    "best_first",
    "best_so_far",
    "curves_figure",
    "drawn_trials",
    "history_figure",
    "importance_figure",
    "parallel_axes",
    "slice_figure",
    "trials_with_curves",
]

#: Highest number of points of the history.
_MOST_POINTS = 2000
#: Numbers of trials that are drawn one by one: the best ones, and a sample of the rest.
_BEST, _SAMPLED = 250, 250
MOST_CURVES = 20
_STATE_WORDS = {state: state.capitalize() for state in Trial.State.values}
#: Kind of a marker -> its look; the browser adds the colour.
_MARKERS: Mapping[str, Mapping[str, Any]] = {
    "complete": {"size": 7, "opacity": 0.85},
    "pruned": {"size": 6, "opacity": 0.35, "symbol": "diamond"},
    "failed": {"size": 8, "opacity": 1, "symbol": "x-thin", "line": {"width": 2}},
}


@dataclass(frozen=True)
class ShownTrial:
    number: int
    #: One of `Trial.State`.
    state: str
    #: Value of the metric; None: there is none, or it is not a finite number.
    value: float | None
    values: Mapping[str, Scalar]
    #: Number of its training, or None before it is submitted.
    job: int | None = None
    finished_at: datetime | None = None

    @property
    def kind(self) -> str:
        return self.state.lower()

    @property
    def counts(self) -> bool:
        """Return whether the trial can be the best: it is complete and has a value."""
        return self.state == Trial.State.COMPLETE and self.value is not None


def best_first(trials: Sequence[ShownTrial], goal: Goal) -> list[ShownTrial]:
    """Return the trials by value, the best first and those without a value last, in the order of the page's table."""
    sign = 1 if goal == "minimize" else -1
    return sorted(trials, key=lambda one: (one.value is None, sign * (one.value or 0), one.number))


def best_so_far(trials: Sequence[ShownTrial], goal: Goal) -> list[tuple[int, float]]:
    """Return number and value of each complete trial that was better than all before it. trials: by number."""
    found: list[tuple[int, float]] = []
    for trial in trials:
        if trial.counts and trial.value is not None:
            is_better = not found or (trial.value < found[-1][1] if goal == "minimize" else trial.value > found[-1][1])
            if is_better:
                found.append((trial.number, trial.value))
    return found


def drawn_trials(trials: Sequence[ShownTrial], goal: Goal) -> tuple[list[ShownTrial], str]:
    """Return the trials that are drawn one by one, the best first, and the sentence about those left out, or ""."""
    ranked = best_first(trials, goal)
    rest = ranked[_BEST:]
    if len(rest) <= _SAMPLED:
        return ranked, ""
    sample = [rest[place * len(rest) // _SAMPLED] for place in range(_SAMPLED)]
    note = f"The best {_BEST} trials and a sample of {_SAMPLED} of the other {len(rest):,}."
    return [*ranked[:_BEST], *sample], note


def trials_with_curves(trials: Sequence[ShownTrial], goal: Goal) -> list[ShownTrial]:
    """Return the trials whose curves are drawn, by number: the best one, then running ones, then the next best."""
    submitted = [trial for trial in trials if trial.job is not None]
    complete, pruned, running = (
        [trial for trial in submitted if trial.state == state]
        for state in (Trial.State.COMPLETE, Trial.State.PRUNED, Trial.State.RUNNING)
    )
    best = [*best_first(complete, goal), *best_first(pruned, goal)]
    chosen = [*best[:1], *reversed(running), *best[1:]][:MOST_CURVES]
    return sorted(chosen, key=lambda trial: trial.number)


def history_figure(trials: Sequence[ShownTrial], goal: Goal, metric: str) -> dict[str, Any]:
    """Return the value of each finished trial by its number, with the best so far as a line. trials: by number."""
    best = best_so_far(trials, goal)
    over = [trial for trial in trials if trial.kind in _MARKERS]
    every = -(-len(over) // _MOST_POINTS)
    improved = {number for number, _ in best}
    drawn = [trial for place, trial in enumerate(over) if place % every == 0 or trial.number in improved]
    note = f"One of {every} trials is drawn, and each that was the best so far." if every > 1 else ""
    return _figure(
        [_best_trace(best, over), *(_marks(drawn, kind, metric) for kind in _MARKERS)],
        meta={
            "note": note,
            "empty": "No trial is over yet. Each adds a point here.",
            "columns": ["Trial", "State", metric, "Best so far"],
            "rows": _history_rows(over, dict(best)),
        },
        xaxis={"title": {"text": "Trial"}, "zeroline": False, "rangemode": "nonnegative", "tickformat": "d"},
        yaxis=_value_axis(metric),
        # Failed trials have no value: their marks stand at the bottom, whatever the values are.
        yaxis2={"overlaying": "y", "range": [0, 1], "visible": False},
    )


def parallel_axes(trials: Sequence[ShownTrial], space: Space, metric: str) -> list[Axis]:
    """Return the axes of the parameters that differ, and last that of the value; none unless there are two."""
    columns = [
        Column("setting", name, [trial.values.get(name) for trial in trials], log=_is_log(space, name))
        for name in varied(space)
    ]
    axes = axes_of([*columns, Column("metric", metric, [trial.value for trial in trials])])
    return axes if len(axes) > 1 else []


def importance_figure(importance: Mapping[str, float], count: int, finished: int) -> dict[str, Any]:
    """Return the bars. count: number of trials that they come from; finished: number of complete trials now."""
    parts = sorted(importance.items(), key=lambda part: part[1])
    percents = [round(100 * part, 1) for _, part in parts]
    bars = go.Bar(
        x=percents,
        y=[escape(name, quote=False) for name, _ in parts],
        orientation="h",
        meta={"kind": "importance"},
        text=[f"{percent:.3g} %" for percent in percents],
        textposition="auto",
        textangle=0,
        cliponaxis=False,
        hovertemplate="%{y}: %{x} %<extra></extra>",
        showlegend=False,
    )
    from_trials = f"By PED-ANOVA, from {count:,} finished trials." if parts else ""
    return _figure(
        [bars],
        meta={
            "note": from_trials,
            "empty": _no_importance(finished),
            "columns": ["Parameter", "Importance (%)"],
            "rows": [[name, percent] for (name, _), percent in zip(parts, percents, strict=True)],
        },
        xaxis={"title": {"text": "Share in the differences of the values (%)"}, "rangemode": "tozero"},
        yaxis={"type": "category"},
        bargap=0.35,
    )


def slice_figure(trials: Sequence[ShownTrial], space: Space, metric: str, note: str) -> dict[str, Any]:
    """Return the values against every parameter, of which the browser draws one. `xs` of a trace: name -> values."""
    names = varied(space)
    traces = []
    for kind in ("complete", "pruned"):
        those = [trial for trial in trials if trial.kind == kind and trial.value is not None]
        trace = _marks(those, kind, metric)
        trace.meta = {**trace.meta, "xs": {name: _along(space, name, those) for name in names}}
        traces.append(trace)
    return _figure(
        traces,
        meta={
            "note": note,
            "empty": "No trial has a value yet.",
            "metric": metric,
            "parameters": {name: _parameter_axis(space, name) for name in names},
        },
        xaxis={"zeroline": False},
        yaxis=_value_axis(metric),
    )


def curves_figure(
    trials: Sequence[ShownTrial], runs: Mapping[int, tuple[float | None, int]], curves: Mapping[int, Curve], metric: str
) -> dict[str, Any]:
    """Return the curves of the trials by progress. runs: job -> its progress, and the step at which it has that."""
    traces = [
        _curve_trace(trial, curves[trial.job], *runs[trial.job])
        for trial in trials
        if trial.job is not None and trial.job in curves and runs[trial.job][0]
    ]
    thinned = max((curve.every for curve in curves.values()), default=1) > 1
    note = (
        f"The running trials and the best, at most {MOST_CURVES}{', with fewer points than were reported' * thinned}."
    )
    return _figure(
        traces,
        meta={
            "note": note if traces else "",
            "empty": f"No trial has reported {metric} with a known progress yet.",
            "columns": ["Trial", "Progress (%)", metric],
        },
        xaxis={"title": {"text": "Progress (%)"}, "range": [0, 100], "zeroline": False},
        yaxis=_value_axis(metric),
    )


def _figure(traces: Sequence[go.Scatter | go.Bar], *, meta: Mapping[str, Any], **looks: Any) -> dict[str, Any]:
    return figure(traces, meta=dict(meta), hovermode="closest", **looks)


def _value_axis(metric: str) -> dict[str, Any]:
    """Return the axis of the metric; Plotly interprets some markup in titles."""
    return {"title": {"text": escape(metric, quote=False)}, "zeroline": False}


def _best_trace(best: Sequence[tuple[int, float]], over: Sequence[ShownTrial]) -> go.Scatter:
    """Return the line of the best so far, up to the last trial that is over."""
    points = [*best, (over[-1].number, best[-1][1])] if best else []
    return go.Scatter(
        x=[number for number, _ in points],
        y=[value for _, value in points],
        name="Best so far",
        meta={"kind": "best"},
        mode="lines",
        line={"shape": "hv", "width": 2},
        hoverinfo="skip",
    )


def _marks(trials: Sequence[ShownTrial], kind: str, metric: str) -> go.Scatter:
    """Return the markers of the trials of a kind."""
    those = [trial for trial in trials if trial.kind == kind and (kind == "failed" or trial.value is not None)]
    is_failed = kind == "failed"
    return go.Scatter(
        x=[trial.number for trial in those],
        y=[0.02 if is_failed else trial.value for trial in those],
        yaxis="y2" if is_failed else "y",
        name=kind.capitalize(),
        meta={"kind": kind, "trials": [trial.number for trial in those]},
        mode="markers",
        marker=dict(_MARKERS[kind]),
        text=[_words(trial, metric) for trial in those],
        hovertemplate="%{text}<extra></extra>",
    )


def _words(trial: ShownTrial, metric: str) -> str:
    """Return the lines about a trial beside its marker; the browser escapes them."""
    value = "failed" if trial.value is None else f"{metric} {number_words(trial.value)}"
    pruned = ", pruned" if trial.state == Trial.State.PRUNED else ""
    return "\n".join([f"Trial {trial.number}: {value}{pruned}", *(_value_words(*one) for one in trial.values.items())])


def _value_words(name: str, value: Scalar) -> str:
    return f"{name} {number_words(value) if isinstance(value, float) else value}"


def _history_rows(over: Sequence[ShownTrial], best: Mapping[int, float]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    so_far = None
    for trial in over:
        so_far = best.get(trial.number, so_far)
        rows.append([trial.number, _STATE_WORDS[trial.state], trial.value, so_far])
    return rows


def _no_importance(finished: int) -> str:
    if finished < FEWEST_TRIALS:
        have = f"{finished} {plural(finished, 'has', 'have')} finished" if finished else "none has finished"
        return f"The importance of each parameter is shown from {FEWEST_TRIALS} finished trials on; {have}."
    return "The values of the finished trials do not tell the parameters apart."


def _is_log(space: Space, name: str) -> bool | None:
    """Return whether the range of a parameter is logarithmic; None: it has a list of values."""
    domain = space[name]
    return domain.log if isinstance(domain, Uniform | Normal) else None


def _parameter_axis(space: Space, name: str) -> dict[str, Any]:
    """Return type and order of values of a parameter's axis."""
    domain = space[name]
    if isinstance(domain, Choice):
        return {"type": "category", "categoryorder": "array", "categoryarray": [word(one) for one in domain.values]}
    return {"type": "log" if _is_log(space, name) else "linear"}


def _along(space: Space, name: str, trials: Sequence[ShownTrial]) -> list[Scalar | None]:
    """Return each trial's place on the axis of a parameter: a number, or the word of a list's value."""
    values = [trial.values.get(name) for trial in trials]
    return [word(value) for value in values] if isinstance(space[name], Choice) else values


def _curve_trace(trial: ShownTrial, curve: Curve, progress: float | None, step: int) -> go.Scatter:
    """Return a trial's curve. The progress of a value is that of its step, in proportion to the steps so far."""
    each = 100 * (progress or 0) / max(1, step)
    return go.Scatter(
        x=[round(min(100.0, sample.step * each), 3) for sample in curve.samples],
        y=[_finite(sample.value) for sample in curve.samples],
        name=f"Trial {trial.number}",
        meta={"kind": "curve", "job": trial.job, "trial": trial.number, "runs": trial.state == Trial.State.RUNNING},
        mode="lines",
        line={"width": 1.5},
        hovertemplate=f"Trial {trial.number}: %{{y:.4g}} after %{{x:.3g}} %<extra></extra>",
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
