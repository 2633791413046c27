"""The curves of a training, and a Plotly figure of them, which `static/js/curves.js` draws: rows on a common step axis.

Metrics on held-out data are separate lines in the row of the metric that they belong to. Metrics named by the script
get rows, too, up to the number that the browser can redraw.
"""

from collections import Counter
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
    "MAX_METRICS",
    "chart_metrics",
    "curves_figure",
    "distinct_labels",
    "held_out_part",
    "held_out_title",
    "main_metrics",
    "metric_label",
    "rows_of",
    "thinned_metrics",
]

#: Largest number of metrics on a page: scripts may report any number.
MAX_METRICS = 12
#: Largest number of lines in a figure: with more, the browser cannot redraw once a second.
MAX_LINES = 8

#: Prefix of metrics on held-out data -> label of that data.
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
#: Metric -> title of its row, in this order. Other rows follow by name.
_TITLES = {"loss": "Loss", "accuracy": "Accuracy (%)", _SPEED: "Samples / s", _RATE: "Learning rate"}
#: Relative heights of the lower rows.
_WEIGHTS = {_SPEED: 0.4, _RATE: 0.28}


@dataclass
class Row:
    """A row of the figure: lines with the same unit."""

    key: str
    title: str
    #: Name of the metric -> label of its line.
    lines: dict[str, str] = field(default_factory=dict)


def chart_metrics(job: Job) -> list[str]:
    """Return the names of the reported metrics, in the order of the chart."""
    rows, left_out = rows_of(job.run.final_metrics)
    return [*(name for row in rows for name in row.lines), *left_out][:MAX_METRICS]


def main_metrics(job: Job) -> list[str]:
    """Return one reported metric of each row, on held-out data if possible; neither speeds nor learning rates."""
    rows, _ = rows_of(job.run.final_metrics)
    return [list(row.lines)[-1] for row in rows if row.key not in _WEIGHTS]


def thinned_metrics(job: Job) -> dict[str, Curve]:
    """Return the curves by name, with two queries for each of at most `MAX_METRICS`."""
    return {name: thinned_points(job, name) for name in chart_metrics(job)}


def held_out_part(name: str) -> tuple[str, str]:
    """Return the data and the metric of a name: `("Test", "loss")` for `test_loss`, `("", "loss")` for `loss`."""
    for prefix, data in HELD_OUT.items():
        if name.startswith(prefix) and len(name) > len(prefix):
            return data, name.removeprefix(prefix)
    return "", name


def rows_of(names: Iterable[str]) -> tuple[list[Row], list[str]]:
    """Return the rows for metrics of these names, and the names that exceed the limit."""
    known = set(names)
    if any(name.startswith(f"{_RATE}/") for name in known):
        known.discard(_RATE)  # each group's learning rate has its own line
    ordered = sorted(known, key=_place)
    rows: dict[str, Row] = {}
    for name in ordered[:MAX_LINES]:
        key = _row_key(name)
        row = rows.setdefault(key, Row(key, _TITLES.get(key, key.replace("_", " ").capitalize())))
        row.lines[name] = metric_label(name)
    for row in rows.values():
        row.lines = distinct_labels(row.lines)
    return list(rows.values()), ordered[MAX_LINES:]


def curves_figure(
    curves: Mapping[str, Curve],
    url: str,
    samples_per_step: int | None = None,
    names: Iterable[str] = (),
    *,
    job: int | None = None,
) -> dict[str, Any]:
    """Return the figure.

    url: address of a new figure, for the browser to load when a new metric appears. names: all metrics of the training:
    the page names those that are not drawn. job: its number, by which the browser loads all values for a CSV file.
    """
    rows, left_out = rows_of({*curves, *names})
    traces = [
        # A single line needs no legend: the title of its row names it.
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
            "job": job,
            "samples_per_step": samples_per_step,
        },
        **{
            _axis_name("yaxis", number): _y_axis(is_low=row.key in _WEIGHTS) for number, row in enumerate(rows, start=1)
        },
    )


def _row_look(row: Row) -> dict[str, Any]:
    """Return the row's relative height, and whether a logarithmic axis and smoothing make sense for it."""
    is_measured = row.key not in _WEIGHTS
    return {
        "key": row.key,
        "title": row.title,
        "weight": _WEIGHTS.get(row.key, 1.0),
        "may_be_log": is_measured and row.key != "accuracy",
        "may_be_smooth": row.key != _RATE,
    }


def _y_axis(*, is_low: bool) -> dict[str, Any]:
    """Return an axis that fits its data; the axis of speeds and rates starts at zero."""
    return {"zeroline": False, "nticks": 3 if is_low else 5, "rangemode": "tozero" if is_low else "normal"}


def _row_title(title: str, number: int) -> dict[str, Any]:
    """Return a title above its row: upright titles beside low rows would overlap."""
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


def held_out_title(data: str, title: str) -> str:
    """Return the title of a metric on this data: `Test loss` for `Test` and `Loss`."""
    return f"{data} {title[:1].lower()}{title[1:]}" if data else title


def distinct_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels by metric, with the metric's name in those that several metrics have.

    `val_loss` and `valid_loss` would both be "Validation loss".
    """
    counts = Counter(labels.values())
    return {name: f"{label} ({name})" if counts[label] > 1 else label for name, label in labels.items()}


def _axis_name(name: str, number: int) -> str:
    """Return Plotly's name of the n-th axis."""
    return name if number == 1 else f"{name}{number}"


def _trace(name: str, label: str, curve: Curve, number: int, place: int) -> go.Scatter:
    data, metric = held_out_part(name)
    is_held_out = bool(data)
    # Label at the end of the line, which distinguishes it within its row.
    shared = name if label.endswith(f"({name})") else data
    end = shared or (metric.removeprefix(f"{_RATE}/") if metric.startswith(f"{_RATE}/") else "Training")
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
