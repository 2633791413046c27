"""Plotly figures of the usage page: GPUs by holder, and their activity. `static/js/pages/usage.js` draws them."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from core.charts import SEVERAL, JobLook, figure, fill_pattern, job_look
from core.time import iso
from jobs.gpu_time import moment
from usage.usage_query import ReportQuery
from usage.usage_report import UNKNOWN_MODEL
from usage.usage_window import Timeline

__all__ = ["usage_figures"]

_HOVER = "%{y:.4~g}"
#: Looks of the activities of held GPUs, in the colours that they have on other pages.
_BUSY = JobLook(2, "#009E73", "#000000", "", 0)
_IDLE = JobLook(1, "#E69F00", "#000000", "", 1)
_UNMEASURED = JobLook(0, "#868e96", "#000000", "", 3)


def usage_figures(query: ReportQuery, times: Timeline) -> dict[str, dict[str, Any]]:
    """Return two figures over the same steps: the GPUs of each holder, and the activity of all held GPUs."""
    edges = [iso(moment(at)) or "" for at in times.edges]
    looks = _looks(query.by, [band.key for band in times.bands])
    allocation = [
        _area(edges, band.label or UNKNOWN_MODEL, band.gpus, looks.get(band.key, SEVERAL)) for band in times.bands
    ]
    parts = zip(times.held, times.busy, times.idle, strict=True)
    rest = [round(max(0.0, held - busy - idle), 4) for held, busy, idle in parts]
    activity = [
        _area(edges, label, heights, look)
        for label, heights, look in (
            ("Busy", times.busy, _BUSY),
            ("Idle", times.idle, _IDLE),
            ("Not measured", rest, _UNMEASURED),
        )
        if any(heights) or not any(times.held)
    ]
    shown = {
        "start": edges[0],
        "end": edges[-1],
        "step_seconds": times.step_seconds,
        "moves": bool(query.range),
    }
    return {
        "allocation": {**_figure(allocation, edges, times.capacity, "allocation"), "shown": shown},
        "activity": {**_figure(activity, edges, times.capacity, "activity"), "shown": shown},
    }


def _looks(by: str, keys: list[int | str | None]) -> Mapping[int | str | None, JobLook]:
    """Return the look of each row: that of the job, or a distinct one for another subject."""
    named = [key for key in keys if key is not None]
    if by == "job":
        return {key: job_look(int(key)) for key in named}
    return {key: job_look(number) for number, key in enumerate(sorted(named, key=str), start=1)}


def _figure(
    traces: Sequence[dict[str, Any]], edges: Sequence[str], capacity: Sequence[float], kind: str
) -> dict[str, Any]:
    first = next((place for place, height in enumerate(capacity) if height), len(capacity))
    pool = go.Scatter(
        x=list(edges),
        y=_stepped([None] * first + list(capacity[first:])),  # no line before the pool's history begins
        name="GPUs in the pool",
        meta={"kind": "capacity"},
        mode="lines",
        line={"width": 1.5, "dash": "dot", "color": "#868e96", "shape": "hv"},
        hovertemplate=_HOVER,
    )
    values = figure(
        [pool],
        xaxis={"type": "date", "title": {"text": "Time"}, "hoverformat": "%b %-d, %Y %H:%M:%S"},
        yaxis={"title": {"text": "GPUs"}, "rangemode": "tozero", "zeroline": False, "nticks": 6},
        hovermode="x unified",
        meta={"kind": kind},
    )
    # Added as plain dicts: Plotly's validation would take longer than everything else here.
    values["data"] = [*traces, *values["data"]]
    return values


def _area(edges: Sequence[str], label: str, heights: Sequence[float], look: JobLook) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": list(edges),
        "y": _stepped(heights),
        # Plotly renders some HTML tags in names, and users choose the names of jobs.
        "name": escape(label, quote=False),
        "meta": {"kind": "band", "label": label},
        "mode": "lines",
        "line": {"shape": "hv", "width": 0, "color": look.colour},
        "fillcolor": look.colour,
        "fillpattern": fill_pattern(look),
        "stackgroup": "gpus",
        "hovertemplate": _HOVER,
    }


def _stepped(heights: Sequence[float | None]) -> list[float | None]:
    """Return the heights with the last one repeated, so that its step extends to the end of the chart."""
    return [*heights, *heights[-1:]]
