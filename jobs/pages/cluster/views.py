"""The cluster's page: every GPU now, and the GPUs of each job over time."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from core.charts import tide_figure
from core.templatetags.tidepool import decimal_size, lasting
from core.time import iso
from jobs.insight.cluster import STATUSES, cluster_live
from jobs.insight.trace import WINDOWS, Trace, cluster_trace

__all__ = ["cluster", "cluster_trace_json"]

COLUMNS = ("Time", "Job", "GPUs", "Why", "Pause (ms)")
_FIRST_WINDOW = 15


@require_safe
def cluster(request: HttpRequest) -> HttpResponse:
    """Show the cluster; htmx gets the GPUs alone."""
    live = cluster_live(request.user)
    width = max((len(host["slots"]) for host in live["hosts"]), default=0)
    for host in live["hosts"]:
        host["absent"] = range(len(host["slots"]), width)
        host["slots"] = [slot | _words(slot) for slot in host["slots"]]
    context: dict[str, Any] = {
        "hosts": live["hosts"],
        "counts": [(status, words, live["counts"][status]) for status, words in STATUSES.items()],
        "width": range(width),
    }
    if "HX-Request" in request.headers:
        return render(request, "jobs/cluster/_now.html", context)
    context |= {
        "section": "cluster",
        "crumbs": [("Cluster", None)],
        "seq": live["seq"],
        "figure": _figure(cluster_trace(request.user, timezone.now(), _FIRST_WINDOW)),
        "windows": WINDOWS,
        "columns": COLUMNS,
    }
    return render(request, "jobs/cluster/page.html", context)


@require_safe
def cluster_trace_json(request: HttpRequest) -> JsonResponse:
    """Return the figure of another window, or a newer one of the same."""
    return JsonResponse(_figure(cluster_trace(request.user, timezone.now(), _minutes(request))))


def _words(slot: dict[str, Any]) -> dict[str, Any]:
    """Return the lines of a GPU's cell, and what hovering it says."""
    used, total, busy = slot["memory_used_bytes"], slot["memory_total_bytes"], slot["utilisation_percent"]
    if slot["job"] is None:
        name, more = STATUSES[slot["status"]], slot["model"]
    else:
        name, more = slot["label"], "" if slot["status"] == "busy" else STATUSES[slot["status"]]
        if slot["status"] == "idle":
            more = f"idle for {lasting(slot['idle_since'])}"
        elif slot["status"] == "busy" and used is not None:
            more = f"{decimal_size(used)} of {decimal_size(total)}" if total else decimal_size(used)
        more = " · ".join(filter(None, [slot["owner"], more]))
    title = ", ".join(filter(None, [slot["label"], slot["model"], more]))
    return {"name": name, "busy": None if busy is None else round(busy), "more": more, "title": title}


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
