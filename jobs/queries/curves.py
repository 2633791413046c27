"""The curves of a training, and one Plotly figure of them: rows one above the other on the same steps;
`static/js/curves.js` draws it.

Held-out metrics are lines of their own in the row of the metric that they belong to. What scripts name themselves gets
rows as well, as far as the browser can keep up with them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import plotly.graph_objects as go

from core.charts import figure
from jobs.models import Job
from jobs.queries.metrics import Curve, thinned_points

__all__ = [
    "HELD_OUT",
    "MAX_LINES",
    "chart_metrics",
    "curves_figure",
    "held_out_part",
    "metric_label",
    "rows_of",
    "thinned_metrics",
]

#: Scripts may report as many metrics as they like; a chart has few lines, and a page little time.
MAX_METRICS = 12
#: Of one figure: with more the browser cannot redraw once a second.
MAX_LINES = 8

#: What names of metrics on data that is not trained on begin with, and what such data is called.
HELD_OUT = {
    "test_": "Test",
    "val_": "Validation",
    "valid_": "Validation",
    "validation_": "Validation",
    "eval_": "Evaluation",
    "held_out_": "Held-out",
}
_RATE = "learning_rate"
_SPEED = "samples_per_second"
#: Rows in this order; others follow by name.
_TITLES = {"loss": "Loss", "accuracy": "Accuracy (%)", _SPEED: "Samples / s", _RATE: "Learning rate"}
#: Rows that are lower than the others.
_WEIGHTS = {_SPEED: 0.4, _RATE: 0.28}


@dataclass
class Row:
    """One part of the figure: lines with the same unit."""

    key: str
    title: str
    #: Name of the metric -> what its line is called.
    lines: dict[str, str] = field(default_factory=dict)


def chart_metrics(job: Job) -> list[str]:
    """Names of the metrics that it has reported, those first that a chart shows first."""
    rows, left_out = rows_of(job.run.final_metrics)
    return [*(name for row in rows for name in row.lines), *left_out][:MAX_METRICS]


def thinned_metrics(job: Job) -> dict[str, Curve]:
    """Return the curves by name; two queries for each of at most `MAX_METRICS`."""
    return {name: thinned_points(job, name) for name in chart_metrics(job)}


def held_out_part(name: str) -> tuple[str, str]:
    """The data and the metric of a name: `("Test", "loss")` of `test_loss`, `("", "loss")` of `loss`."""
    for prefix, data in HELD_OUT.items():
        if name.startswith(prefix) and len(name) > len(prefix):
            return data, name.removeprefix(prefix)
    return "", name


def rows_of(names: Iterable[str]) -> tuple[list[Row], list[str]]:
    """Return the rows that metrics of these names are drawn in, and the names left out where there are too many."""
    known = set(names)
    if any(name.startswith(f"{_RATE}/") for name in known):
        known.discard(_RATE)  # the first one has a line of its own
    ordered = sorted(known, key=_place)
    rows: dict[str, Row] = {}
    for name in ordered[:MAX_LINES]:
        key = _row_key(name)
        row = rows.setdefault(key, Row(key, _TITLES.get(key, key.replace("_", " ").capitalize())))
        row.lines[name] = metric_label(name)
    return list(rows.values()), ordered[MAX_LINES:]


def curves_figure(curves: Mapping[str, Curve], url: str, samples_per_step: int | None = None) -> dict[str, Any]:
    """`url`: where the browser finds the figure anew, when a metric comes that this one does not have."""
    rows, left_out = rows_of(curves)
    traces = [
        # A line that is alone is named by the title of its row.
        _trace(name, label, curves[name], number, place).update(showlegend=len(row.lines) > 1)
        for number, row in enumerate(rows, start=1)
        for place, (name, label) in enumerate(row.lines.items())
    ]
    return figure(
        traces,
        annotations=[_row_title(row.title, number) for number, row in enumerate(rows, start=1)],
        xaxis={"zeroline": False, "anchor": "y", "showspikes": True, "spikemode": "across"},
        hovermode="x unified",
        hoversubplots="axis",
        meta={
            "kind": "curves",
            "rows": [_row_look(row) for row in rows],
            "left_out": left_out,
            "url": url,
            "samples_per_step": samples_per_step,
        },
        **{
            _axis_name("yaxis", number): _y_axis(is_low=row.key in _WEIGHTS) for number, row in enumerate(rows, start=1)
        },
    )


def _row_look(row: Row) -> dict[str, Any]:
    """Return its height beside others, and whether a logarithmic axis and smoothing tell something about it."""
    is_measured = row.key not in _WEIGHTS
    return {
        "key": row.key,
        "title": row.title,
        "weight": _WEIGHTS.get(row.key, 1.0),
        "may_be_log": is_measured and row.key != "accuracy",
        "may_be_smooth": row.key != _RATE,
    }


def _y_axis(*, is_low: bool) -> dict[str, Any]:
    """Return an axis that fits its data; where half as much is half as good, from zero."""
    return {"zeroline": False, "nticks": 3 if is_low else 5, "rangemode": "tozero" if is_low else "normal"}


def _row_title(title: str, number: int) -> dict[str, Any]:
    """A title above its row: beside low rows, upright titles would run into each other."""
    place = {"x": 0, "xref": "paper", "xanchor": "left", "y": 1, "yref": f"{_axis_name('y', number)} domain"}
    return {**place, "yanchor": "bottom", "text": f"<b>{escape(title, quote=False)}</b>", "showarrow": False}


def _place(name: str) -> tuple[int, str, bool, str]:
    key = _row_key(name)
    order = list(_TITLES)
    return order.index(key) if key in order else len(order), key, bool(held_out_part(name)[0]), name


def _row_key(name: str) -> str:
    metric = held_out_part(name)[1]
    return _RATE if metric.startswith(f"{_RATE}/") else metric


def metric_label(name: str) -> str:
    data, metric = held_out_part(name)
    if metric.startswith(f"{_RATE}/"):
        return f"Learning rate of {metric.removeprefix(f'{_RATE}/')}"
    if metric == _SPEED:
        return "Samples per second"
    words = metric.replace("_", " ")
    if data:
        return f"{data} {words}"
    return f"Training {words}" if metric in {"loss", "accuracy"} else words.capitalize()


def _axis_name(name: str, number: int) -> str:
    """Plotly's name of the n-th axis."""
    return name if number == 1 else f"{name}{number}"


def _trace(name: str, label: str, curve: Curve, number: int, place: int) -> go.Scatter:
    data, metric = held_out_part(name)
    is_held_out = bool(data)
    # What stands at the end of the line: what tells it from the others of its row.
    end = data or (metric.removeprefix(f"{_RATE}/") if metric.startswith(f"{_RATE}/") else "Training")
    return go.Scatter(
        x=[sample.step for sample in curve.samples],
        y=[sample.value for sample in curve.samples],
        customdata=[[sample.at and round(sample.at.timestamp() * 1000), sample.epoch] for sample in curve.samples],
        name=label,
        meta={"kind": "metric", "metric": name, "place": place, "every": curve.every, "end": end},
        mode="lines+markers" if is_held_out else "lines",
        marker={"size": 5},
        line={
            "width": 2.5 if is_held_out else 1.5,
            "dash": "dot" if is_held_out else "solid",
            "shape": "hv" if _row_key(name) == _RATE else "linear",
        },
        connectgaps=False,
        hovertemplate="%{y:.4g}",
        xaxis="x",
        yaxis=_axis_name("y", number),
    )
