"""The overview, and the answers where a page cannot be shown."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounts.authentication import LOCKED_OUT
from core.errors import TooMany, UserError
from core.live import current_seqs
from core.pages import login_user
from core.rest import REFUSALS, error_response
from core.roles import is_cluster_admin
from insights.cluster_trace import WINDOWS, cluster_trace, first_window
from insights.overview import cluster_page
from insights.pages.cluster.views import COLUMNS, trace_figure
from jobs.pages.queries import job_or_404
from jobs.queries.job_list import jobs_topic
from jobs.topics import GROUPS, job_of_topic
from webapp.first_steps import first_steps
from webapp.form_pages import form_page, is_of_browser, wants_json
from webapp.health import troubles
from workers.topics import CLUSTER

__all__ = [
    "api_refused",
    "bad_request",
    "csrf_failure",
    "locked_out",
    "not_found",
    "overview",
    "overview_now",
    "permission_denied",
    "refused",
    "server_error",
    "topic_number",
]

#: Beginnings of WMLA's addresses; their clients print a refusal as it came.
_FOR_WMLA = ("/platform/", "/auth/", "/v1/preauth/")
#: Statuses with a page that shows the sentence of a refusal.
_PAGES = (400, 403, 404, 409)


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    cluster, now = cluster_page(request.user, request.GET), timezone.now()
    minutes = first_window(now)
    context = {
        "section": "overview",
        "crumbs": [("Overview", None)],
        "cluster": cluster,
        "figure": trace_figure(cluster_trace(request.user, now, minutes)),
        "windows": WINDOWS,
        "minutes": minutes,
        "columns": COLUMNS,
        "troubles": troubles(now) if is_cluster_admin(request.user) else [],
        "first_steps": first_steps(request.user),
    }
    return render(request, "overview.html", context)


@require_safe
def overview_now(request: HttpRequest) -> HttpResponse:
    """Return the parts of the overview that change, as the server renders them now."""
    found = troubles(timezone.now()) if is_cluster_admin(request.user) else []
    context = {
        "cluster": cluster_page(request.user, request.GET),
        "troubles": found,
        "first_steps": first_steps(request.user),
        "is_renewed": True,
    }
    return render(request, "_overview_now.html", context)


@require_safe
def topic_number(request: HttpRequest, topic: str) -> JsonResponse:
    """Return the newest number of a topic, for pages that fetch what they show in parts."""
    user = login_user(request)
    if topic not in (CLUSTER, GROUPS, jobs_topic(user)):
        job = job_of_topic(topic)
        if job is None:
            raise Http404
        job_or_404(user, job)
    return JsonResponse({"seq": current_seqs([topic])[topic], "state": {}})


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    sentence = "The request does not fit: check its address and host name, and send it again."
    return _refusal(request, 400, "bad_request", sentence)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    """Show the form's page again, with a valid token: the form's token ended with the log-in that it was made for."""
    page = form_page(request)
    if page is not None and is_of_browser(request):
        messages.error(
            request,
            "Nothing was changed, because you have logged in again since the page was opened. Send the form again.",
        )
        return redirect(page)
    return _refusal(request, 403, "permission_denied", "The form is too old: load the page again, and repeat the step.")


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    return _refusal(request, 403, "permission_denied", "You may not do this: ask its owner or an administrator.")


def refused(request: HttpRequest, error: UserError) -> HttpResponseBase:
    """Answer with a refusal in its own words."""
    answer = _refusal(request, error.status, error.code, error.message, fields=error.fields, refusal=error.message)
    if isinstance(error, TooMany):
        answer["Retry-After"] = str(error.retry_seconds)
    return answer


def api_refused(error: Exception, context: dict[str, Any]) -> HttpResponseBase | None:
    """Return the API's refusal; a page in words for a person who followed a link to a download."""
    answer, request = error_response(error, context), context["request"]._request
    if answer is None or answer.status_code not in _PAGES or request.headers.get("Sec-Fetch-Mode") != "navigate":
        return answer
    return render(request, f"{answer.status_code}.html", {"refusal": answer.data["error"]}, status=answer.status_code)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    return _refusal(request, 404, "not_found", REFUSALS["not_found"])


def server_error(request: HttpRequest) -> HttpResponseBase:
    sentence = (
        "Server error: it has been logged. Trainings continue. Try again; if the error persists, tell an administrator."
    )
    return _refusal(request, 500, "server_error", sentence)


def locked_out(request: HttpRequest, response: object, credentials: object) -> HttpResponseBase:
    """Return the answer to the wrong password that was one too many, for django-axes."""
    if request.path.startswith((*_FOR_WMLA, "/api/")):
        return _refusal(request, 429, "throttled", LOCKED_OUT)
    return HttpResponse(f"{LOCKED_OUT}\n", status=429, content_type="text/plain; charset=utf-8")


def _refusal(
    request: HttpRequest,
    status: int,
    code: str,
    sentence: str,
    *,
    fields: Mapping[str, Sequence[str]] | None = None,
    **words: str,
) -> HttpResponseBase:
    """Return a page for people; programs get the one error shape of the API, or of WMLA's addresses."""
    if request.path.startswith(_FOR_WMLA):
        return HttpResponse(f"Error {status}: {sentence}\n", status=status, content_type="text/plain; charset=utf-8")
    if request.path.startswith("/api/") or wants_json(request):
        return JsonResponse({"error": sentence, "code": code, "fields": fields or {}}, status=status)
    return render(request, f"{status}.html", words, status=status)
