"""The curves of several trainings in one Plotly figure: a row for each quantity, a colour for each training;
`static/js/pages/compare.js` draws them by step or by time since each training's start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import plotly.graph_objects as go

from core.charts import as_json, job_look, layout

__all__ = ["Line", "Point", "Quantity", "comparison_figure"]

#: Above each row, for its title.
_GAP = 0.045
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
    #: What the points are values of; empty where they are no metric, or there is none yet.
    metric: str = ""
    #: One point in so many is here, and more than so many are not drawn.
    every: int = 1
    most: int = 0


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
    height = 1 / max(1, len(rows))
    axes = {
        _axis("yaxis", number): {
            "domain": [max(0, 1 - number * height), 1 - (number - 1) * height - _GAP],
            "rangemode": "tozero",
            "zeroline": False,
            "nticks": 4,
        }
        for number in range(1, len(rows) + 1)
    }
    figure.update_layout(
        annotations=[_row_title(row.title, number) for number, row in enumerate(rows, start=1)],
        xaxis={"anchor": _axis("y", max(1, len(rows))), "rangemode": "tozero", "zeroline": False},
        legend={"groupclick": "togglegroup"},
        hovermode="closest",
        meta={"kind": "comparison"},
        **axes,
    )
    return as_json(figure)


def _axis(name: str, number: int) -> str:
    return name if number == 1 else f"{name}{number}"


def _row_title(title: str, number: int) -> dict[str, Any]:
    """Above its row: beside low rows, upright titles would run into each other."""
    place = {"x": 0, "xref": "paper", "xanchor": "left", "y": 1, "yref": f"{_axis('y', number)} domain"}
    return {**place, "yanchor": "bottom", "text": f"<b>{title}</b>", "showarrow": False, "font": {"size": 12}}


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
        meta={
            "job": line.job,
            "label": line.label,
            "title": row.title,
            "metric": line.metric,
            "every": line.every,
            "most": line.most,
        },
        legendgroup=str(line.job),
        showlegend=is_named and bool(line.points),
        mode="lines",
        line={"color": look.colour, "width": 2, "dash": dash, "shape": "hv" if row.is_stepped else "linear"},
        connectgaps=False,
        hovertemplate="%{y:.4g}",
        xaxis="x",
        yaxis=_axis("y", number),
    )
