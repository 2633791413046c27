"""The use of GPUs over time, and of their memory: of a training, or of the cluster; with what happened meanwhile."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go
from django.db.models import Q, QuerySet

from core.charts import TIME_AXIS, figure
from core.models import AuditEntry
from core.text import plural
from core.time import duration, iso
from jobs.control.gpu_spans import KEPT, SPAN, Span, from_json, merged
from jobs.gpu_time import moment, to_ms
from jobs.models import GpuSpans, Job, SlotClaim
from jobs.queries.jobs import allocation_series, event_list
from jobs.states import Reason
from jobs.words import gpus
from workers.models import GpuReading
from workers.queries import capacity_since

__all__ = ["GPU_COLUMNS", "GpuUse", "Line", "Mark", "claim_spans", "cluster_use", "job_use", "use_figure"]

GPU_COLUMNS = ("From", "Until", "GPU", "Busy (%)", "Memory (GiB)")
#: Limits of what a browser redraws in time.
MAX_LINES = 64
MAX_CELLS = 6_000
MAX_MARKS = 200
_LOSSES = (Reason.HOST_LOST, Reason.RANK_LOST)
#: Verbs of the audit that are marked. Joins and losses of hosts show in their capacity.
_ABOUT_HOSTS = ("drained", "resumed", "removed", "restored")
_GIB = 2**30


@dataclass(frozen=True)
class Mark:
    """An event that changed the GPUs, with its sentence."""

    at: datetime
    text: str


@dataclass(frozen=True)
class Line:
    #: `host:index` of a GPU; or the name of a host, whose spans are the means of its GPUs.
    name: str
    memory_total_bytes: int | None
    spans: Sequence[Span]


@dataclass(frozen=True)
class GpuUse:
    start: datetime
    end: datetime
    #: Length of the longest spans, in seconds.
    span_seconds: int
    lines: Sequence[Line]
    #: Number of GPUs or hosts that were left out.
    left_out: int
    marks: Sequence[Mark]


def job_use(job: Job, now: datetime) -> GpuUse:
    """Return the use of the GPUs of a training, while it held them."""
    claims = SlotClaim.objects.filter(job=job)
    start, end = job.started_at or job.submitted_at, job.finished_at or now
    return _use(claims, start, end, _job_marks(job))


def cluster_use(now: datetime, minutes: int) -> GpuUse:
    """Return the use of all GPUs while trainings held them; by host, if there are many."""
    start = now - timedelta(minutes=minutes)
    claims = SlotClaim.objects.filter(Q(released_at=None) | Q(released_at__gte=start), claimed_at__lt=now)
    return _use(claims, start, now, _host_marks(start, now))


def _use(claims: QuerySet[SlotClaim], start: datetime, end: datetime, marks: Sequence[Mark]) -> GpuUse:
    held = claims.select_related("slot__host", "slot__reading").order_by(
        "slot__host__name", "slot__index", "claimed_at"
    )
    by_claim = claim_spans(held, start, end)
    names = {claim.pk: str(claim.slot) for claim in held}
    if len({claim.slot_id for claim in held}) > MAX_LINES:
        names = {claim.pk: claim.slot.host.name for claim in held}
    totals = {
        names[claim.pk]: getattr(getattr(claim.slot, "reading", None), "memory_total_bytes", None) for claim in held
    }
    spans: dict[str, list[Span]] = defaultdict(list)
    for claim, found in by_claim.items():
        spans[names[claim]] += found
    shown = list(spans)[:MAX_LINES]
    length = span_length(start, end, len(shown))
    lines = [Line(name, totals[name], means(spans[name], length)) for name in shown]
    return GpuUse(start, end, length // 1000, lines, len(spans) - len(shown), marks)


def span_length(start: datetime, end: datetime, lines: int) -> int:
    """Return the milliseconds of a span with which a figure of so many lines has at most `MAX_CELLS` cells."""
    least = (to_ms(end) - to_ms(start)) * max(1, lines) // MAX_CELLS
    lengths = [SPAN, 30_000, *(into for _, _, into in KEPT if into), 3_600_000]
    return next((length for length in sorted(lengths) if length >= least), -(-least // 3_600_000) * 3_600_000)


def means(spans: Iterable[Span], length: int) -> list[Span]:
    """Return spans that do not overlap: those of one claim merged, those of several GPUs of a host averaged. Pure."""
    together = merged(spans, length)
    if all(first.end <= second.start for first, second in pairwise(together)):
        return together
    parts: dict[int, list[Span]] = defaultdict(list)
    for span in together:
        parts[span.start // length].append(span)
    return [_averaged(part) for _, part in sorted(parts.items())]


def _averaged(spans: Sequence[Span]) -> Span:
    told = [(span.busy_percent, span.end - span.start) for span in spans if span.busy_percent is not None]
    weight = sum(length for _, length in told)
    busy = sum(percent * length for percent, length in told) / weight if weight else None
    memory = [span.memory_bytes for span in spans if span.memory_bytes is not None]
    ends = min(span.start for span in spans), max(span.end for span in spans)
    return Span(spans[0].claim, *ends, busy, sum(memory) // len(memory) if memory else None)


def claim_spans(claims: QuerySet[SlotClaim], start: datetime, end: datetime) -> Mapping[int, list[Span]]:
    """Return claim -> its spans, with the one that is still open."""
    spans: dict[int, list[Span]] = {claim.pk: [] for claim in claims}
    hosts = {claim.slot.host_id for claim in claims}
    longest = timedelta(seconds=max(length for length, _, _ in KEPT) / 1000)
    stored = GpuSpans.objects.filter(host__in=hosts, at__gte=start - longest, at__lt=end).order_by("at")
    for values in stored.values_list("spans", flat=True).iterator(chunk_size=2000):
        for one in values:
            if (span := from_json(one)).claim in spans:
                spans[span.claim].append(span)
    slots = [claim.slot_id for claim in claims if claim.released_at is None]
    for values in GpuReading.objects.filter(slot__in=slots).values_list("open_span", flat=True):
        if values and (span := from_json(values)).claim in spans:
            spans[span.claim].append(span)
    first, last = to_ms(start), to_ms(end)
    return {
        claim: [
            replace(span, start=max(span.start, first), end=min(span.end, last))
            for span in found
            if span.end > first and span.start < last
        ]
        for claim, found in spans.items()
    }


def _job_marks(job: Job) -> list[Mark]:
    """Return the training's changes of GPUs, and the losses of hosts and processes."""
    sizes = [
        Mark(point.at, f"{gpus(point.slots)}. {point.reason_text}".strip(". ") + ".")
        for point in allocation_series(job)
    ]
    losses = [Mark(event.at, event.text) for event in event_list(job).filter(reason__in=_LOSSES)]
    return sorted([*sizes, *losses], key=lambda mark: mark.at)[-MAX_MARKS:]


def _host_marks(start: datetime, end: datetime) -> list[Mark]:
    """Return the hosts that came, went, were drained or taken back into service."""
    marks = []
    slots: dict[int, int] = {}
    for point in capacity_since(start, end):
        before = slots.get(point.host_id, 0)
        if point.at >= start and point.slots != before:
            marks.append(Mark(point.at, f"{point.host.name} offers {gpus(point.slots)}, {before} before."))
        slots[point.host_id] = point.slots
    entries = AuditEntry.objects.filter(kind="host", verb__in=_ABOUT_HOSTS, at__gte=start, at__lt=end)
    marks += [Mark(entry.at, f"{entry.name} was {entry.verb}.") for entry in entries]
    return sorted(marks, key=lambda mark: mark.at)[-MAX_MARKS:]


def use_figure(use: GpuUse) -> dict[str, Any]:
    """Return a figure of two rows, utilization above memory, with a bar for each span and a line for each GPU.

    The browser adds the colours of the bars, whose values are in `customdata`, and the viewer's time zone.
    """
    names = [line.name for line in use.lines]
    traces = [_bars(use, kind) for kind in ("busy", "memory")]
    lines = {"type": "category", "categoryorder": "array", "categoryarray": names[::-1], "automargin": True}
    return figure(
        [*traces, _marks(use)],
        xaxis=TIME_AXIS | {"anchor": "y2"},
        yaxis=lines | {"domain": [0.54, 1], "title": {"text": "Busy", "standoff": 24}},
        yaxis2=lines | {"domain": [0, 0.46], "title": {"text": "Memory", "standoff": 24}},
        yaxis3={"domain": [0, 1], "range": [0, 1], "overlaying": "y", "visible": False},
        meta={"kind": "use", "lines": len(names), "start": iso(use.start), "end": iso(use.end), "note": _note(use)},
        hovermode="closest",
        barmode="overlay",
        bargap=0.12,
    )


def _note(use: GpuUse) -> str:
    left_out = f" {plural(use.left_out, '{count} line is', '{count} lines are')} not drawn." if use.left_out else ""
    span = duration(use.span_seconds)
    return f"Each bar is a mean over at most {span}. A deeper color means a higher value.{left_out}"


def _bars(use: GpuUse, kind: str) -> go.Bar:
    """Return the bars of a row: `x` is the length in milliseconds from `base` on."""
    cells = [(line, span) for line in use.lines for span in line.spans]
    of_kind = {"busy": _busy_share, "memory": _memory_share}[kind]
    told = [(line, span, share) for line, span in cells if (share := of_kind(line, span)) is not None]
    return go.Bar(
        orientation="h",
        base=[iso(moment(span.start)) for _, span, _ in told],
        x=[span.end - span.start for _, span, _ in told],
        y=[line.name for line, _, _ in told],
        yaxis="y" if kind == "busy" else "y2",
        # [share of the whole, from 0 to 1; utilization in percent; bytes in use]
        customdata=[[share, span.busy_percent, span.memory_bytes] for _, span, share in told],
        meta={"kind": kind},
        showlegend=False,
        hovertemplate="%{text}<extra></extra>",
    )


def _busy_share(_: Line, span: Span) -> float | None:
    return None if span.busy_percent is None else span.busy_percent / 100


def _memory_share(line: Line, span: Span) -> float | None:
    """Return the share of the GPU's memory; for virtual GPUs, of the most that any time in the figure had."""
    if span.memory_bytes is None:
        return None
    total = line.memory_total_bytes or max(one.memory_bytes or 0 for one in line.spans)
    return min(1.0, span.memory_bytes / total) if total else 0.0


def _marks(use: GpuUse) -> go.Scatter:
    return go.Scatter(
        x=[iso(mark.at) for mark in use.marks],
        y=[1] * len(use.marks),
        yaxis="y3",
        text=[mark.text for mark in use.marks],
        mode="markers",
        marker={"symbol": "triangle-down", "size": 9},
        meta={"kind": "marks"},
        showlegend=False,
        cliponaxis=False,
        hovertemplate="%{text}<extra></extra>",
    )
