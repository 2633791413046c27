"""The cluster's page: every GPU now, and the GPUs of each job over time."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from core.charts import tide_figure
from core.live import current_seqs
from core.time import iso
from insights.cluster import STATUSES, hosts_with_slots, page_of_hosts, pool_totals, slots_of_hosts
from insights.cluster_trace import WINDOWS, Trace, cluster_trace
from insights.gpu_use import GPU_COLUMNS
from workers.topics import CLUSTER

__all__ = [
    "COLUMNS",
    "FIRST_WINDOW",
    "cluster",
    "cluster_now",
    "cluster_trace_json",
    "group_figure",
    "minutes_of",
    "trace_figure",
]

COLUMNS = ("Time", "Training", "GPUs", "Why", "Pause (ms)")
FIRST_WINDOW = 15
#: Count -> its label. In use = training + starting or releasing + silent; idle GPUs are part of training.
_COUNTED = {"held": "in use", "training": "training", "idle": "of these idle", "vacating": STATUSES["vacating"]}
_COUNTED |= {status: STATUSES[status] for status in ("silent", "free", "draining", "offline")}


@require_safe
def cluster(request: HttpRequest) -> HttpResponse:
    context = {
        "section": "cluster",
        "crumbs": [("Cluster", None)],
        **_now(request),
        "figure": trace_figure(cluster_trace(request.user, timezone.now(), FIRST_WINDOW)),
        "windows": WINDOWS,
        "minutes": FIRST_WINDOW,
        "columns": COLUMNS,
        "gpu_columns": GPU_COLUMNS,
    }
    return render(request, "insights/cluster/page.html", context)


@require_safe
def cluster_now(request: HttpRequest) -> HttpResponse:
    """Return the part of the page with the present GPUs."""
    return render(request, "insights/cluster/_now.html", _now(request))


@require_safe
def cluster_trace_json(request: HttpRequest) -> JsonResponse:
    """Return the figure of the window `?minutes=`."""
    return JsonResponse(trace_figure(cluster_trace(request.user, timezone.now(), minutes_of(request))))


def _now(request: HttpRequest) -> dict[str, Any]:
    # Read the sequence number first: a change published meanwhile arrives again and has no further effect.
    seq = current_seqs([CLUSTER])[CLUSTER]
    page = page_of_hosts(hosts_with_slots(), request.GET)
    hosts, totals = slots_of_hosts(request.user, page.rows), pool_totals()
    width = max((len(host["slots"]) for host in hosts), default=0)
    for host in hosts:
        host["absent"] = range(len(host["slots"]), width)
    counts = [(name, words, totals.counts[name]) for name, words in _COUNTED.items()]
    return {"seq": seq, "hosts": hosts, "page": page, "counts": counts, "width": range(width)}


def minutes_of(request: HttpRequest) -> int:
    text = request.GET.get("minutes", str(FIRST_WINDOW))
    if text not in {str(minutes) for _, minutes in WINDOWS}:
        raise Http404
    return int(text)


def trace_figure(trace: Trace) -> dict[str, Any]:
    """Return the figure that Overview and Cluster draw."""
    return _figure(trace, pool=True, capacities=trace.capacities)


def group_figure(trace: Trace) -> dict[str, Any]:
    """Return the figure of an instance group, without free GPUs: others may hold those that it lacks."""
    return _figure(trace, pool=False, limit="GPUs of the resource group")


def _figure(trace: Trace, **look: Any) -> dict[str, Any]:
    figure = tide_figure(trace.bands, trace.capacity, held=trace.held, **look)
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
