"""The page that compares several jobs."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from core.errors import UserError
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
from insights.line_groups import grouped_results, line_groupings, requested_grouping
from insights.step_time.page import compared_bars
from jobs.models import Job
from jobs.pages.crumbs import LIST_CRUMB
from jobs.queries.chosen_charts import chosen_charts
from jobs.queries.jobs import visible_jobs
from jobs.states import TERMINAL
from jobs.topics import job_topic

__all__ = ["job_compare", "job_compare_curves", "job_compare_tables"]


@require_safe
def job_compare(request: HttpRequest) -> HttpResponse:
    """Compare `?jobs=1,2,3` in this order; a job that the user may not see makes the whole address 404.

    `group` is the key of the grouping of the lines; without it, the user's last choice counts.
    """
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
        "models": ", ".join(sorted({job.model.model.name for job in jobs})),
        **_grouped(request, jobs),
        "columns": ("Training", "Step", "Seconds since start", "Value"),
        "chart_epochs": any(job.run.epoch for job in jobs),
        "chart_samples": any(job.samples_per_step for job in jobs),
        "tables": _tables(jobs),
        **compared_bars(jobs),
        "are_over": all(job.state in TERMINAL for job in jobs),
    }
    return render(request, "insights/compare/page.html", context, status=400 if context["problem"] else 200)


@require_safe
def job_compare_curves(request: HttpRequest) -> JsonResponse:
    """Return new figures, for when a line begins, GPUs change or a training starts again."""
    return JsonResponse({"figures": comparison_figures(quantities_of(_requested_jobs(request)))})


@require_safe
def job_compare_tables(request: HttpRequest) -> HttpResponse:
    """Return the part of the page with the tables."""
    jobs = _requested_jobs(request)
    context = {"jobs": jobs, "tables": _tables(jobs), **compared_bars(jobs), **_grouped(request, jobs)}
    return render(request, "insights/compare/_tables.html", context, status=400 if context["problem"] else 200)


def _requested_jobs(request: HttpRequest) -> list[Job]:
    numbers = job_numbers(request.GET.get("jobs", ""))
    if not MIN_CHOSEN <= len(numbers) <= MAX_JOBS:
        raise Http404
    return _jobs(request, numbers)


def _jobs(request: HttpRequest, numbers: list[int]) -> list[Job]:
    found = {job.pk: job for job in visible_jobs(request.user).filter(pk__in=numbers)}
    return [or_404(found.get(number)) for number in numbers]


def _grouped(request: HttpRequest, jobs: list[Job]) -> dict[str, Any]:
    """Return the groupings, the chosen one with its results, and the reason why the one in the address is not shown."""
    chosen = chosen_charts(request.user, jobs)
    groupings = line_groupings(request.user, jobs)
    grouping, problem = None, ""
    if "group" in request.GET:
        try:
            grouping = requested_grouping(groupings, request.GET["group"])
        except UserError as error:
            problem = error.message
    else:  # other trainings of the model may have no such grouping
        grouping = next((one for one in groupings if one.key == chosen["group"]), None)
    rows = grouped_results(jobs, grouping) if grouping else []
    return {
        "chosen_charts": chosen,
        "groupings": groupings,
        "groupings_json": [one.as_json() for one in groupings],
        "grouping": grouping,
        "group_rows": [(row.name, row.values) for row in rows],
        "problem": problem,
    }


def _tables(jobs: list[Job]) -> list[tuple[str, list[Compared]]]:
    """Return the tables, differences first."""
    tables = {"Settings and parameters": compared_settings(jobs), "Results": compared_metrics(jobs)}
    return [(title, sorted(lines, key=lambda line: not line.differs)) for title, lines in tables.items()]
