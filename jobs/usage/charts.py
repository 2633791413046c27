"""Figures of the usage page: GPUs by holder, and their activity. `static/js/pages/usage.js` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import plotly.graph_objects as go

from core.charts import SEVERAL, JobLook, as_json, fill_pattern, job_look, layout

__all__ = ["Area", "activity_figure", "allocation_figure"]

_HOVER = "%{y:.4~g}"
#: Of what held GPUs do: the same colours as words of the same meaning have elsewhere.
_BUSY = JobLook(2, "#009E73", "#000000", "", 0)
_IDLE = JobLook(1, "#E69F00", "#000000", "", 1)
_UNMEASURED = JobLook(0, "#868e96", "#000000", "", 3)


@dataclass(frozen=True)
class Area:
    label: str
    #: GPUs in each step.
    heights: Sequence[float]
    #: The number of a job, or of what shall look like one; None: several as one.
    look: int | None


def allocation_figure(edges: Sequence[str], areas: Sequence[Area], capacity: Sequence[float]) -> dict[str, Any]:
    """edges: where the steps begin, and where the last one ends."""
    traces = [_area(edges, area.label, area.heights, _look(area)) for area in areas]
    return _figure(traces, edges, capacity, "allocation")


def activity_figure(
    edges: Sequence[str], held: Sequence[float], busy: Sequence[float], idle: Sequence[float], capacity: Sequence[float]
) -> dict[str, Any]:
    rest = [round(max(0.0, all_ - one - other), 4) for all_, one, other in zip(held, busy, idle, strict=True)]
    shown = [("Busy", busy, _BUSY), ("Idle", idle, _IDLE), ("Not measured", rest, _UNMEASURED)]
    traces = [_area(edges, label, heights, look) for label, heights, look in shown if any(heights) or not any(held)]
    return _figure(traces, edges, capacity, "activity")


def _figure(
    traces: Sequence[dict[str, Any]], edges: Sequence[str], capacity: Sequence[float], kind: str
) -> dict[str, Any]:
    figure = go.Figure(layout=layout())
    figure.add_trace(
        go.Scatter(
            x=list(edges),
            y=_stepped(_known(capacity)),
            name="GPUs in the pool",
            meta={"kind": "capacity"},
            mode="lines",
            line={"width": 1.5, "dash": "dot", "color": "#868e96", "shape": "hv"},
            hovertemplate=_HOVER,
        )
    )
    figure.update_xaxes(type="date", title_text="Time", hoverformat="%b %-d, %Y %H:%M:%S")
    figure.update_yaxes(title_text="GPUs", rangemode="tozero", zeroline=False, nticks=6)
    figure.update_layout(hovermode="x unified", meta={"kind": kind})
    values = as_json(figure)
    # Plotly's checks take longer than all else; what an area is made of does not change.
    values["data"] = [*traces, *values["data"]]
    return values


def _area(edges: Sequence[str], label: str, heights: Sequence[float], look: JobLook) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": list(edges),
        "y": _stepped(heights),
        # Plotly reads a little markup in names, and people name jobs.
        "name": escape(label, quote=False),
        "meta": {"kind": "band", "label": label},
        "mode": "lines",
        "line": {"shape": "hv", "width": 0, "color": look.colour},
        "fillcolor": look.colour,
        "fillpattern": fill_pattern(look),
        "stackgroup": "gpus",
        "hovertemplate": _HOVER,
    }


def _known(capacity: Sequence[float]) -> list[float | None]:
    """A gap where its history has not begun."""
    first = next((place for place, height in enumerate(capacity) if height), len(capacity))
    return [None] * first + list(capacity[first:])


def _stepped(heights: Sequence[float | None]) -> list[float | None]:
    """Each holds until the next one begins, the last until the end."""
    return [*heights, *heights[-1:]]


def _look(area: Area) -> JobLook:
    return SEVERAL if area.look is None else job_look(area.look)
