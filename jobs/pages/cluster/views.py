"""The cluster's page: every GPU now, and the GPUs of each job over time."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from core.charts import tide_figure
from core.time import iso
from jobs.insight.cluster import STATUSES, cluster_live
from jobs.insight.trace import WINDOWS, Trace, cluster_trace

__all__ = ["COLUMNS", "cluster", "cluster_now", "cluster_trace_json", "trace_figure"]

COLUMNS = ("Time", "Job", "GPUs", "Why", "Pause (ms)")
_FIRST_WINDOW = 15
#: Held is training and changing hands together; of those that train, some are idle.
_COUNTED = {"held": "held", "training": "training", "vacating": STATUSES["vacating"], "idle": STATUSES["idle"]}
_COUNTED |= {status: STATUSES[status] for status in ("free", "draining", "offline")}


@require_safe
def cluster(request: HttpRequest) -> HttpResponse:
    context = {
        "section": "cluster",
        "crumbs": [("Cluster", None)],
        **_now(request),
        "figure": trace_figure(cluster_trace(request.user, timezone.now(), _FIRST_WINDOW)),
        "windows": WINDOWS,
        "minutes": _FIRST_WINDOW,
        "columns": COLUMNS,
    }
    return render(request, "jobs/cluster/page.html", context)


@require_safe
def cluster_now(request: HttpRequest) -> HttpResponse:
    """Return the GPUs as they are now."""
    return render(request, "jobs/cluster/_now.html", _now(request))


@require_safe
def cluster_trace_json(request: HttpRequest) -> JsonResponse:
    """Return the figure of another window, or a newer one of the same."""
    return JsonResponse(trace_figure(cluster_trace(request.user, timezone.now(), _minutes(request))))


def _now(request: HttpRequest) -> dict[str, Any]:
    live = cluster_live(request.user)
    width = max((len(host["slots"]) for host in live["hosts"]), default=0)
    for host in live["hosts"]:
        host["absent"] = range(len(host["slots"]), width)
    counts = [(name, words, live["counts"][name]) for name, words in _COUNTED.items()]
    return {"seq": live["seq"], "hosts": live["hosts"], "counts": counts, "width": range(width)}


def _minutes(request: HttpRequest) -> int:
    asked = request.GET.get("minutes", str(_FIRST_WINDOW))
    if asked not in {str(minutes) for _, minutes in WINDOWS}:
        raise Http404
    return int(asked)


def trace_figure(trace: Trace) -> dict[str, Any]:
    """Return the figure that Overview and Cluster draw."""
    figure = tide_figure(trace.bands, trace.capacity, pool=True, held=trace.held, capacities=trace.capacities)
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
