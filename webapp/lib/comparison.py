"""The curves of several trainings in one Plotly figure: a row for each quantity, a colour for each training;
`static/js/compare.js` draws them by step or by time since each training's start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import plotly.graph_objects as go

from webapp.lib.charts import as_json, job_look, layout

__all__ = ["Line", "Point", "Quantity", "comparison_figure"]

_GAP = 0.03
_DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True)
class Point:
    step: int
    #: Since the training's first start.
    seconds: float
    #: None: not a number, drawn as a gap.
    value: float | None


@dataclass(frozen=True)
class Line:
    job: int
    label: str
    points: Sequence[Point] = field(default_factory=list)


@dataclass(frozen=True)
class Quantity:
    title: str
    lines: Sequence[Line]
    #: It holds its value until the next point.
    is_stepped: bool = False


def comparison_figure(quantities: Sequence[Quantity]) -> dict[str, Any]:
    """Rows without a single point are left out."""
    rows = [quantity for quantity in quantities if any(line.points for line in quantity.lines)]
    figure = go.Figure(layout=layout())
    dashes = _dashes({line.job for row in rows for line in row.lines})
    shown: set[int] = set()
    for number, row in enumerate(rows, start=1):
        for line in row.lines:
            figure.add_trace(_trace(line, row, number, dashes[line.job], is_named=line.job not in shown))
            shown |= {line.job} if line.points else set()
    height = (1 + _GAP) / max(1, len(rows))
    axes = {
        f"yaxis{number if number > 1 else ''}": {
            "title": {"text": row.title},
            "domain": [max(0, 1 - number * height + _GAP), 1 - (number - 1) * height],
            "rangemode": "tozero",
            "zeroline": False,
            "nticks": 4,
        }
        for number, row in enumerate(rows, start=1)
    }
    last = f"y{len(rows) if len(rows) > 1 else ''}"
    figure.update_layout(
        xaxis={"anchor": last, "rangemode": "tozero", "zeroline": False},
        legend={"groupclick": "togglegroup"},
        hovermode="closest",
        meta={"kind": "comparison"},
        **axes,
    )
    return as_json(figure)


def _dashes(jobs: set[int]) -> dict[int, str]:
    """Jobs of the same colour differ by their dashes."""
    used: dict[str, int] = {}
    dashes = {}
    for job in sorted(jobs):
        colour = job_look(job).colour
        dashes[job] = _DASHES[used.get(colour, 0) % len(_DASHES)]
        used[colour] = used.get(colour, 0) + 1
    return dashes


def _trace(line: Line, row: Quantity, number: int, dash: str, *, is_named: bool) -> go.Scatter:
    look = job_look(line.job)
    return go.Scatter(
        x=[point.step for point in line.points],
        y=[point.value for point in line.points],
        customdata=[round(point.seconds, 1) for point in line.points],
        # Plotly reads a little markup in names, and people name jobs.
        name=escape(f"{look.letter} · {line.label}", quote=False),
        meta={"job": line.job, "label": line.label, "title": row.title},
        legendgroup=str(line.job),
        showlegend=is_named and bool(line.points),
        mode="lines",
        line={"color": look.colour, "width": 2, "dash": dash, "shape": "hv" if row.is_stepped else "linear"},
        connectgaps=False,
        hovertemplate="%{y:.4g}",
        xaxis="x",
        yaxis=f"y{number if number > 1 else ''}",
    )
