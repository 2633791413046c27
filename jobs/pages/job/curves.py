"""Sources of a plain script's curves, and the pattern that parses its log."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from core.errors import UserError
from core.pages import login_user
from core.text import plural
from jobs.actions.curves import PATTERN_HELP, change_log_pattern, try_log_pattern
from jobs.models import Job
from jobs.pages.crumbs import LIST_CRUMB
from jobs.pages.queries import job_or_404

__all__ = ["job_log_pattern", "sources_of"]

_KINDS = {"log": "log", "csv": "CSV file", "json": "JSON file", "tensorboard": "TensorBoard file", "library": "library"}


def sources_of(job: Job) -> dict[str, Any]:
    """Return the sources in the order of their kinds, each with its curves."""
    curves: dict[tuple[str, str], list[str]] = {}
    for name, source in sorted(job.run.curve_sources.items()):
        curves.setdefault((source["kind"], source["where"]), []).append(name)
    sources = [{"kind": _KINDS[kind], "where": where, "curves": names} for (kind, where), names in curves.items()]
    return {"sources": sources, "pattern": job.log_pattern, "limits": _limits_of(job)}


def _limits_of(job: Job) -> list[str]:
    """Return sentences about what the curves lack."""
    said, limits = [], job.run.curve_limits
    if names := limits.get("names"):
        said.append(
            f"{names:,} more {plural(names, 'metric has', 'metrics have')} no curve: the first 100 of a step are kept, "
            "with names of at most 64 characters, and 200 of a plain script's files and logs."
        )
    if limits.get("gaps"):
        said.append(
            "The curves have gaps: the script wrote more than can be kept, or faster than it could be read. The final "
            "values are those that it wrote last."
        )
    return said


@require_http_methods(["GET", "HEAD", "POST"])
def job_log_pattern(request: HttpRequest, job_id: int) -> HttpResponse:
    """Show the pattern. A POST tries another pattern on the last lines, or stores it, by the value of `act`."""
    job = job_or_404(request.user, job_id)
    is_post = request.method == "POST"
    pattern = request.POST.get("pattern", "").strip() if is_post else job.log_pattern
    crumbs = [LIST_CRUMB, (job.name, reverse("jobs:detail", args=[job.pk])), ("Log pattern", None)]
    context: dict[str, Any] = {"section": "jobs", "crumbs": crumbs, "job": job, "pattern": pattern, "found": None}
    context["help"] = PATTERN_HELP
    try:
        if not is_post or request.POST.get("act") == "try":
            context["found"] = try_log_pattern(job, pattern)
        else:
            change_log_pattern(job.pk, pattern, login_user(request).get_username())
            messages.success(request, "The log is being parsed again.")
            return redirect("jobs:detail", job.pk)
    except UserError as error:
        context["problem"] = error.message
    return render(request, "jobs/job/pattern.html", context, status=400 if "problem" in context else 200)
