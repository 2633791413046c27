"""Figures of the pages as Plotly JSON, checked by Plotly's own validators; `static/js/charts.js` draws them.

The server decides the content and look of a figure. The browser adds the theme's colours, the viewer's
time zone, the stacking of bands on one time axis, and live data. `meta` of each trace names its kind.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.io.json import to_json_plotly

from core.time import iso

__all__ = [
    "SEVERAL",
    "TIME_AXIS",
    "Band",
    "JobLook",
    "Step",
    "figure",
    "fill_pattern",
    "gpu_ticks",
    "job_look",
    "tide_figure",
]

#: Colours of jobs: Okabe and Ito's and four more by lightness, in an order that makes consecutive jobs look different.
_COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8A5A00",
    "#F0E442", "#5B3F9B", "#D55E00", "#7FCDB0", "#004D6E", "#9C9A3C",
)  # fmt: skip
_LIGHT = frozenset({"#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#F0E442", "#D55E00", "#7FCDB0", "#9C9A3C"})
#: Plotly's shapes for the classes `pattern-0` to `pattern-5` of the style sheet.
_PATTERN_SHAPES = ("", "/", "|", ".", "\\", "-")

#: Tick formats by the distance of two ticks in milliseconds: seconds are shown if minutes would repeat.
_TICK_FORMATS = [
    {"dtickrange": [None, 59_999], "value": "%H:%M:%S\n%b %-d"},
    {"dtickrange": [60_000, None], "value": "%H:%M\n%b %-d"},
]

#: Axis of times: the browser writes them in the viewer's time zone.
TIME_AXIS = {
    "type": "date",
    "title": {"text": "Time of day"},
    "hoverformat": "%H:%M:%S",
    "tickformatstops": _TICK_FORMATS,
}

#: Layout that all figures share.
_LAYOUT = {
    "margin": {"l": 52, "r": 16, "t": 8, "b": 44},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"size": 12},
    "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    "showlegend": True,
    "dragmode": False,
}


@dataclass(frozen=True)
class JobLook:
    #: Index of the colour, 0 to 11; the CSS class `job-<hue>` has the same colour.
    hue: int
    colour: str
    #: Text colour that is readable on the colour: black or white.
    ink: str
    letter: str
    #: Index of the pattern, 0 to 5, for the CSS class `pattern-<pattern>`.
    pattern: int


#: Look of several jobs that share a band.
SEVERAL = JobLook(0, "#868e96", "#000000", "", 0)


@dataclass(frozen=True)
class Step:
    """A change to `slots` GPUs at the time `at`."""

    at: datetime
    #: Number of GPUs; a mean in figures of long times.
    slots: float
    #: Reason in the scheduler's sentence; empty if the viewer may not know it.
    text: str = ""
    pause_ms: float | None = None


@dataclass(frozen=True)
class Band:
    #: Id of the job; 0 for a band of several jobs.
    job: int
    label: str
    steps: Sequence[Step]


def job_look(job: int) -> JobLook:
    """Return the look of a job, the same on all pages.

    Consecutive jobs differ in hue, letter and pattern, and neighbours with the same hue in the pattern. 312 consecutive
    jobs differ in letter or hue: 26 letters and 12 hues alone would repeat after 156.
    """
    hue = job % len(_COLOURS)
    colour = _COLOURS[hue]
    ink = "#000000" if colour in _LIGHT else "#ffffff"
    letter = chr(ord("A") + (job - 1 + (job - 1) // 156) % 26)
    return JobLook(hue, colour, ink, letter, (job + job // len(_COLOURS)) % len(_PATTERN_SHAPES))


def tide_figure(
    bands: Sequence[Band],
    capacity: int,
    *,
    pool: bool,
    held: Sequence[Step] = (),
    capacities: Sequence[Step] | None = None,
    limit: str = "Most that it may have",
) -> dict[str, Any]:
    """Return a figure of GPUs over time.

    pool: whether the figure shows the cluster, with GPUs outside of all bands hatched as free; otherwise it shows a job
    or a group below its limit.
    held: number of held GPUs; those outside of all bands start or release them.
    capacities: past capacities, if known; otherwise the line shows the current one.
    """
    label = "GPUs in the pool" if pool else limit
    traces = [
        _changing_trace(held),
        *([_free_trace()] if pool else []),
        _capacity_trace(capacity, label, capacities or ()),
        _changes_trace(),
    ]
    values = figure(
        traces,
        xaxis=TIME_AXIS,
        yaxis={
            "title": {"text": "GPUs"},
            "rangemode": "tozero",
            "tick0": 0,
            "dtick": gpu_ticks(capacity),
            "zeroline": False,
            "range": [0, max(1, capacity) * 1.1],
        },
        meta={"kind": "tide", "capacity": capacity, "has_past_capacity": capacities is not None, "pool": pool},
        hovermode="closest",
    )
    # Plotly's validation is the slowest part of a page with many jobs, so bands are plain dicts, built below.
    values["data"] = [*map(_band_trace, bands), *values["data"]]
    return values


def gpu_ticks(most: int) -> int:
    """Return the distance of two ticks on an axis from 0 to `most` GPUs: a whole number, for at most nine ticks."""
    return max(1, -(-most // 8))


def figure(traces: Sequence[go.Scatter | go.Bar], **looks: Any) -> dict[str, Any]:
    """Return a figure for `json_script`. looks: keywords of the layout; the browser adds the theme's colours.

    Plotly validated each trace when it was made, and validates the layout here; a `go.Figure` would validate all again.
    """
    layout = go.Layout(**{**_LAYOUT, **looks})
    parts = {"data": [trace.to_plotly_json() for trace in traces], "layout": layout.to_plotly_json()}
    values: dict[str, Any] = json.loads(to_json_plotly(parts))
    return values


def _band_trace(band: Band) -> dict[str, Any]:
    look = job_look(band.job) if band.job else SEVERAL
    return {
        "type": "scatter",
        "x": [iso(step.at) for step in band.steps],
        "y": [step.slots for step in band.steps],
        "customdata": [[step.text, step.pause_ms] for step in band.steps],
        # Plotly interprets some markup in names, and users name jobs.
        "name": escape(f"{look.letter} · {band.label}" if band.job else band.label, quote=False),
        "meta": {"kind": "band", "job": band.job, "label": band.label},
        "mode": "lines",
        "line": {"shape": "hv", "width": 0, "color": look.colour},
        "fillcolor": look.colour,
        "fillpattern": fill_pattern(look),
        "stackgroup": "gpus",
        "hoverinfo": "skip",
    }


def fill_pattern(look: JobLook) -> dict[str, Any]:
    """Return the pattern of the job in the slot map."""
    shade = {"fgcolor": look.ink, "bgcolor": look.colour, "fgopacity": 0.16, "fillmode": "replace"}
    return {"shape": _PATTERN_SHAPES[look.pattern], "size": 9, "solidity": 0.3, **shade}


def _changing_trace(held: Sequence[Step]) -> go.Scatter:
    """Return the trace of GPUs that are held but do not train, drawn above the bands up to `held`."""
    return go.Scatter(
        x=[iso(step.at) for step in held],
        y=[step.slots for step in held],
        name="Starting or releasing",
        meta={"kind": "changing"},
        mode="lines",
        line={"shape": "hv", "width": 0, "color": "#868e96"},
        fillcolor="#868e96",
        fillpattern={"shape": "x", "size": 7, "solidity": 0.3, "fgcolor": "#ffffff", "fillmode": "replace"}
        | {"bgcolor": "#868e96", "fgopacity": 0.35},
        stackgroup="gpus",
        hoverinfo="skip",
    )


def _free_trace() -> go.Scatter:
    return go.Scatter(
        x=[],
        y=[],
        name="Free",
        meta={"kind": "free"},
        mode="lines",
        line={"shape": "hv", "width": 0, "color": "#868e96"},
        fillcolor="rgba(134,142,150,0.06)",
        fillpattern={"shape": "/", "size": 8, "solidity": 0.12, "fgcolor": "#868e96", "fillmode": "overlay"},
        stackgroup="gpus",
        hoverinfo="skip",
    )


def _capacity_trace(capacity: int, label: str, capacities: Sequence[Step]) -> go.Scatter:
    return go.Scatter(
        x=[iso(step.at) for step in capacities],
        y=[step.slots for step in capacities],
        name=f"{label}: {capacity}",
        meta={"kind": "capacity"},
        mode="lines",
        line={"width": 1.5, "dash": "dot", "color": "#868e96", "shape": "hv"},
        hoverinfo="skip",
    )


def _changes_trace() -> go.Scatter:
    """Return the trace of markers at changes of a band; the browser places them on top of their bands."""
    return go.Scatter(
        x=[],
        y=[],
        meta={"kind": "changes"},
        mode="markers",
        marker={"size": 8, "line": {"width": 1.5, "color": "#ffffff"}},
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )
