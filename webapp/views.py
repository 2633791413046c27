"""The overview, and the answers where a page cannot be shown."""

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from core.charts import tide_figure
from core.errors import NotAllowed
from core.live import CLUSTER, GROUPS, current_seqs
from core.pages import login_user
from jobs.pages.queries import cluster_live, cluster_page
from jobs.queries.listing import jobs_topic

__all__ = [
    "bad_request",
    "csrf_failure",
    "locked_out",
    "not_found",
    "overview",
    "overview_live",
    "permission_denied",
    "refused",
    "server_error",
    "topic_number",
]

TIDE_COLUMNS = ("Time", "Job", "GPUs", "Why", "Pause (ms)")
#: What the overview's chart can show: words and minutes.
WINDOWS = [("5 min", 5), ("15 min", 15), ("1 h", 60), ("6 h", 360)]
#: Where WMLA's addresses begin; their clients print what is refused as it came.
_FOR_WMLA = ("/platform/", "/auth/", "/v1/preauth/")


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
    """State for an overview whose live chain broke, or that websockets do not reach."""
    return JsonResponse(cluster_live(request.user))


@require_safe
def topic_number(request: HttpRequest, topic: str) -> JsonResponse:
    """Return the newest number of a topic, for pages that fetch what they show in parts."""
    if topic not in (CLUSTER, GROUPS, jobs_topic(login_user(request))):
        raise Http404
    return JsonResponse({"seq": current_seqs([topic])[topic], "state": {}})


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    sentence = "The request does not fit: check its address and host name, and send it again."
    return _refusal(request, 400, "bad_request", sentence)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    return _refusal(request, 403, "permission_denied", "The form is too old: load the page again, and repeat the step.")


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    return _refusal(request, 403, "permission_denied", "You may not do this: ask its owner or an administrator.")


def refused(request: HttpRequest, error: NotAllowed) -> HttpResponseBase:
    """Answer with a refusal by the user's role, in its own words."""
    return _refusal(request, error.status, error.code, error.message, refusal=error.message)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    return _refusal(request, 404, "not_found", "There is nothing at this address: check the path and the id.")


def server_error(request: HttpRequest) -> HttpResponseBase:
    sentence = "The server made a mistake; trainings go on. Try again, or tell an administrator."
    return _refusal(request, 500, "server_error", sentence)


def locked_out(request: HttpRequest, response: object, credentials: object) -> HttpResponseBase:
    """The answer to the wrong password that was one too many, for django-axes."""
    sentence = "Too many failed log-ins: wait a quarter of an hour."
    if request.path.startswith((*_FOR_WMLA, "/api/")):
        return _refusal(request, 429, "throttled", sentence)
    return HttpResponse(f"{sentence}\n", status=429, content_type="text/plain; charset=utf-8")


def _refusal(request: HttpRequest, status: int, code: str, sentence: str, **words: str) -> HttpResponseBase:
    """A page for people; programs get the one error shape of the API, or of WMLA's addresses."""
    if request.path.startswith(_FOR_WMLA):
        return HttpResponse(f"Error {status}: {sentence}\n", status=status, content_type="text/plain; charset=utf-8")
    if request.path.startswith("/api/"):
        return JsonResponse({"error": sentence, "code": code, "fields": {}}, status=status)
    return render(request, f"{status}.html", words, status=status)
