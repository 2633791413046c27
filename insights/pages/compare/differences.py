"""The page that compares many trainings: parallel coordinates, and a table of what differs."""

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from core.errors import NotFound, UserError
from core.pages import login_user
from core.parallel import Column, axes_of, drawing
from insights.differences import MOST_JOBS, default_axes, differing
from insights.job_numbers import MIN_CHOSEN, job_numbers, jobs_in_order
from jobs.models import Job
from jobs.pages.crumbs import LIST_CRUMB
from jobs.queries.job_columns import joined_columns
from jobs.queries.job_list import JobFilter, list_keys

__all__ = ["job_differences"]

_MOST_COLUMNS = 40


@require_safe
def job_differences(request: HttpRequest) -> HttpResponse:
    """Show `?jobs=1,2,3`, or with `matching` all jobs that fit the filter; `axes` and `sort` are keys of columns."""
    numbers = _numbers(request, login_user(request))
    context: dict[str, Any] = {
        "section": "jobs",
        "crumbs": [LIST_CRUMB, ("Differences", None)],
        "least": MIN_CHOSEN,
        "most": MOST_JOBS,
        "count": len(numbers),
    }
    if not MIN_CHOSEN <= len(numbers) <= MOST_JOBS:
        return render(request, "insights/compare/differences.html", context, status=400 if request.GET else 200)
    try:
        jobs = jobs_in_order(request.user, numbers)
    except NotFound as error:
        raise Http404 from error
    return render(request, "insights/compare/differences.html", {**context, **_table(request, jobs)})


def _table(request: HttpRequest, jobs: list[Job]) -> dict[str, Any]:
    sort = request.GET.get("sort", "")
    jobs = _sorted(jobs, sort)
    differ, same = differing(jobs)
    shown = differ[:_MOST_COLUMNS]
    heads = [(column, f"-{column.key}" if sort == column.key else column.key, _aria(column, sort)) for column in shown]
    words = zip(*(column.words for column in shown), strict=True)
    return {
        "jobs": jobs,
        "heads": heads,
        "rows": list(zip(jobs, words, strict=True)) if shown else [],
        "left_out": len(differ) - len(shown),
        "same": same,
        **_drawing(jobs, differ, request.GET.getlist("axes")),
        "given": [(name, text) for name in request.GET if name != "axes" for text in request.GET.getlist(name)],
    }


def _drawing(jobs: Sequence[Job], differ: Sequence[Column], wanted: Sequence[str]) -> dict[str, Any]:
    """Return the context of the parallel coordinates. wanted: keys of columns; empty: the first of each kind."""
    chosen = [column for column in differ if column.key in wanted] if wanted else default_axes(differ)
    return {
        "drawing": drawing([(job.pk, f"{job.name} ({job.pk})") for job in jobs], axes_of(chosen)),
        "choices": [(axis.column, axis.column in chosen) for axis in axes_of(differ)],
    }


def _numbers(request: HttpRequest, user: User) -> list[int]:
    if "matching" not in request.GET:
        return job_numbers(request.GET.get("jobs", ""))
    try:
        wanted = JobFilter({name: text for name, text in joined_columns(request.GET).items() if name != "sort"})
    except UserError as error:
        raise Http404 from error
    return list(list_keys(user, wanted).order_by("-pk").values_list("pk", flat=True)[: MOST_JOBS + 1])


def _sorted(jobs: list[Job], sort: str) -> list[Job]:
    """Sort jobs by a column, those without a value last; keep the order if there is no such column."""
    differ, _ = differing(jobs)
    column = next((one for one in differ if one.key == sort.removeprefix("-")), None)
    if column is None:
        return jobs
    are_numbers = all(isinstance(value, int | float) for value in column.values if value is not None)
    keys: Sequence[Any] = column.values if are_numbers else column.words
    with_value = [(key, job) for key, job, value in zip(keys, jobs, column.values, strict=True) if value is not None]
    ordered = [job for _, job in sorted(with_value, key=lambda one: one[0], reverse=sort.startswith("-"))]
    return ordered + [job for job, value in zip(jobs, column.values, strict=True) if value is None]


def _aria(column: Column, sort: str) -> str:
    return {column.key: "ascending", f"-{column.key}": "descending"}.get(sort, "none")
