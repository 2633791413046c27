"""The page that compares several jobs."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from jobs.comparison import MAX_JOBS, MIN_JOBS, compared_metrics, compared_settings, quantities_of
from jobs.list_views import job_numbers
from jobs.queries import visible_jobs
from webapp.lib.comparison import comparison_figure
from webapp.lib.pages import or_404

__all__ = ["job_compare"]


@require_safe
def job_compare(request: HttpRequest) -> HttpResponse:
    """`?jobs=1,2,3` in this order; an address with a job that one may not see leads nowhere."""
    numbers = job_numbers(request.GET.get("jobs", ""))
    context: dict[str, object] = {
        "section": "jobs",
        "crumbs": [("Jobs", "/jobs/"), ("Compare", None)],
        "least": MIN_JOBS,
        "most": MAX_JOBS,
    }
    if not MIN_JOBS <= len(numbers) <= MAX_JOBS:
        status = 400 if request.GET.get("jobs") else 200
        return render(request, "jobs/compare.html", {**context, "count": len(numbers)}, status=status)
    found = {job.pk: job for job in visible_jobs(request.user).filter(pk__in=numbers)}
    jobs = [or_404(found.get(number)) for number in numbers]
    context |= {
        "jobs": jobs,
        "figure": comparison_figure(quantities_of(jobs)),
        "columns": ("Training", "Quantity", "Step", "Seconds since its start", "Value"),
        "tables": [("Settings and parameters", compared_settings(jobs)), ("Results", compared_metrics(jobs))],
    }
    return render(request, "jobs/compare.html", context)
