"""The cluster's page: every GPU now, and the GPUs of each job over time."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from core.charts import tide_figure
from core.time import iso
from jobs.insight.cluster import STATUSES, cluster_live
from jobs.insight.trace import WINDOWS, Trace, cluster_trace

__all__ = ["cluster", "cluster_live_json", "cluster_trace_json"]

COLUMNS = ("Time", "Job", "GPUs", "Why", "Pause (ms)")
_FIRST_WINDOW = 15


@require_safe
def cluster(request: HttpRequest) -> HttpResponse:
    live = cluster_live(request.user)
    trace = cluster_trace(request.user, timezone.now(), _FIRST_WINDOW)
    context = {
        "section": "cluster",
        "crumbs": [("Cluster", None)],
        "hosts": live["hosts"],
        "counts": [(status, words, live["counts"][status]) for status, words in STATUSES.items()],
        "live": live,
        "statuses": STATUSES,
        "figure": _figure(trace),
        "windows": WINDOWS,
        "columns": COLUMNS,
        "width": range(max((len(host["slots"]) for host in live["hosts"]), default=0)),
    }
    return render(request, "jobs/cluster/page.html", context)


@require_safe
def cluster_live_json(request: HttpRequest) -> JsonResponse:
    return JsonResponse(cluster_live(request.user))


@require_safe
def cluster_trace_json(request: HttpRequest) -> JsonResponse:
    """Return the figure of another window, or a newer one of the same."""
    return JsonResponse(_figure(cluster_trace(request.user, timezone.now(), _minutes(request))))


def _minutes(request: HttpRequest) -> int:
    asked = request.GET.get("minutes", str(_FIRST_WINDOW))
    if asked not in {str(minutes) for _, minutes in WINDOWS}:
        raise Http404
    return int(asked)


def _figure(trace: Trace) -> dict[str, Any]:
    figure = tide_figure(trace.bands, trace.capacity, pool=True, capacities=trace.capacities)
    figure["layout"]["meta"] |= {
        "mean_seconds": trace.mean_seconds,
        "count": trace.count,
        "end": iso(trace.end),
        "changes": [_change(trace, number) for number in range(len(trace.changes))] if trace.mean_seconds else [],
    }
    return figure


def _change(trace: Trace, number: int) -> list[Any]:
    change = trace.changes[number]
    label = trace.labels.get(change.job)
    return [iso(change.at), change.job, label, change.slots, change.text, change.pause_ms]
