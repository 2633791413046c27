"""The page that compares several jobs."""

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from core.live import current_seqs
from core.pages import or_404
from insights.comparison import (
    MAX_JOBS,
    Compared,
    compared_live,
    compared_metrics,
    compared_settings,
    comparison_figures,
    quantities_of,
)
from insights.differences import MOST_JOBS
from insights.job_numbers import MIN_CHOSEN, job_numbers
from jobs.models import Job
from jobs.pages.crumbs import LIST_CRUMB
from jobs.queries.jobs import visible_jobs
from jobs.states import TERMINAL
from jobs.topics import job_topic

__all__ = ["job_compare", "job_compare_curves", "job_compare_tables"]


@require_safe
def job_compare(request: HttpRequest) -> HttpResponse:
    """Compare `?jobs=1,2,3` in this order; a job that the user may not see makes the whole address 404."""
    numbers = job_numbers(request.GET.get("jobs", ""))
    context: dict[str, object] = {
        "section": "jobs",
        "crumbs": [LIST_CRUMB, ("Compare", None)],
        "least": MIN_CHOSEN,
        "most": MOST_JOBS,
    }
    if MAX_JOBS < len(numbers) <= MOST_JOBS:
        return redirect(f"{reverse('insights:differences')}?{request.GET.urlencode()}")
    if not MIN_CHOSEN <= len(numbers) <= MAX_JOBS:
        status = 400 if request.GET.get("jobs") else 200
        return render(request, "insights/compare/page.html", {**context, "count": len(numbers)}, status=status)
    # Read the sequence numbers first: a change published meanwhile arrives again and has no further effect.
    seqs = current_seqs([job_topic(number) for number in numbers])
    jobs = _jobs(request, numbers)
    context |= {
        "jobs": jobs,
        "live": compared_live(jobs, seqs),
        "figures": comparison_figures(quantities_of(jobs)),
        "columns": ("Training", "Step", "Seconds since start", "Value"),
        "chart_epochs": any(job.run.epoch for job in jobs),
        "chart_samples": any(job.samples_per_step for job in jobs),
        "tables": _tables(jobs),
        "are_over": all(job.state in TERMINAL for job in jobs),
    }
    return render(request, "insights/compare/page.html", context)


@require_safe
def job_compare_curves(request: HttpRequest) -> JsonResponse:
    """Return new figures, for when a line begins, GPUs change or a training starts again."""
    return JsonResponse({"figures": comparison_figures(quantities_of(_requested_jobs(request)))})


@require_safe
def job_compare_tables(request: HttpRequest) -> HttpResponse:
    """Return the part of the page with the tables."""
    jobs = _requested_jobs(request)
    return render(request, "insights/compare/_tables.html", {"jobs": jobs, "tables": _tables(jobs)})


def _requested_jobs(request: HttpRequest) -> list[Job]:
    numbers = job_numbers(request.GET.get("jobs", ""))
    if not MIN_CHOSEN <= len(numbers) <= MAX_JOBS:
        raise Http404
    return _jobs(request, numbers)


def _jobs(request: HttpRequest, numbers: list[int]) -> list[Job]:
    found = {job.pk: job for job in visible_jobs(request.user).filter(pk__in=numbers)}
    return [or_404(found.get(number)) for number in numbers]


def _tables(jobs: list[Job]) -> list[tuple[str, list[Compared]]]:
    """Return the tables, differences first."""
    tables = {"Settings and parameters": compared_settings(jobs), "Results": compared_metrics(jobs)}
    return [(title, sorted(lines, key=lambda line: not line.differs)) for title, lines in tables.items()]
