"""The overview, and what is said where a page cannot be shown."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from jobs.page_queries import cluster_live, cluster_page
from webapp.lib.charts import tide_figure

__all__ = ["bad_request", "csrf_failure", "not_found", "overview", "overview_live", "permission_denied", "server_error"]

TIDE_COLUMNS = ("Time", "Job", "GPUs", "Why", "Pause (ms)")
#: What the overview's chart can show: words and minutes.
WINDOWS = [("5 min", 5), ("15 min", 15), ("1 h", 60), ("6 h", 360)]


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    cluster = cluster_page(request.user)
    context = {
        "section": "overview",
        "crumbs": [("Overview", None)],
        "cluster": cluster,
        "figure": tide_figure(cluster.bands, cluster.capacity, pool=True),
        "windows": WINDOWS,
        "tide_columns": TIDE_COLUMNS,
    }
    return render(request, "overview.html", context)


@require_safe
def overview_live(request: HttpRequest) -> JsonResponse:
    """What the overview fetches when its live chain breaks or websockets do not get through."""
    return JsonResponse(cluster_live(request.user))


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    sentence = "The request does not fit: check its address and host name, and send it again."
    return _refusal(request, 400, "bad_request", sentence)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    return _refusal(request, 403, "permission_denied", "The form is too old: load the page again, and repeat the step.")


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    return _refusal(request, 403, "permission_denied", "You may not do this: ask its owner or an administrator.")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    return _refusal(request, 404, "not_found", "There is nothing at this address: check the path and the id.")


def server_error(request: HttpRequest) -> HttpResponseBase:
    sentence = "The server made a mistake; trainings go on. Try again, or tell an administrator."
    return _refusal(request, 500, "server_error", sentence)


def _refusal(request: HttpRequest, status: int, code: str, sentence: str) -> HttpResponseBase:
    """A page for people; programs get the one error shape of the API."""
    if request.path.startswith("/api/"):
        return JsonResponse({"error": sentence, "code": code, "fields": {}}, status=status)
    return render(request, f"{status}.html", status=status)
