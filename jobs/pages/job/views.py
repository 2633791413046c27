"""The page of one job, and what its buttons do."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from core.charts import tide_figure
from core.errors import UserError
from core.formfields import parameters_as_text, show_error
from core.pages import login_user
from jobs import actions
from jobs.actions import JobChange
from jobs.control.fixed_size import is_resumable, stop_words
from jobs.files.result import code_files, result_files, shown_code
from jobs.files.validation_runs import validation_of
from jobs.insight.advice import job_advice
from jobs.insight.curves import as_curves, thinned_metrics
from jobs.insight.curves_figure import curves_figure
from jobs.models import Checkpoint, Job
from jobs.pages.queries import job_live, job_or_404, job_page
from jobs.pages.train.forms import ChangeForm
from jobs.pages.train.views import say_changed
from jobs.permissions import refusals_by_state
from jobs.queries.jobs import rank_list, undoable_changes
from models_registry.queries import versions

__all__ = ["job_act", "job_change", "job_clone", "job_curves", "job_detail", "job_detail_live", "job_part"]

LIST_CRUMB = ("Jobs", "/jobs/")
TIDE_COLUMNS = ("Time", "Job", "GPUs", "Why", "Pause (ms)")

#: Parts of a job's page: the fragment of its address, and the tab's words.
JOB_TABS = (
    ("overview", "Overview"),
    ("logs", "Logs"),
    ("ranks", "Ranks"),
    ("events", "Events"),
    ("results", "Results & checkpoints"),
    ("settings", "Parameters"),
    ("code", "Code"),
)

#: What buttons of a job's page do, and what is said when it is done.
_ACTIONS: dict[str, tuple[Callable[[int, str], Job], str]] = {
    "cancel": (actions.cancel, "The training is being stopped."),
    "suspend": (actions.suspend, "The training stops after the step under way: its GPUs go to others."),
    "resume": (actions.resume, "The training waits for GPUs again."),
}

_MAX_RANKS = 500
_MAX_CHECKPOINTS = 100
_NO_STEP = "No step is done yet. Loss and accuracy appear after the first one."
_NO_STEP_OVER = "It did no step, so there is no loss or accuracy."
#: Of a script that is not elastic: a single process may have a session.
_NO_METRICS = "Its script reports no steps, so there is nothing to draw: what it prints is in its log."
_NO_SPEED = "Nothing is measured yet. How many samples it measures in a second appears here."
_NO_SPEED_OVER = "It did not measure any sample, so there is no speed to draw."


@require_safe
def job_detail(request: HttpRequest, job_id: int) -> HttpResponse:
    """Show the job; `?file=` shows another file of its code than the entry point."""
    job = job_or_404(request.user, job_id)
    return _job_page(request, job, ChangeForm(initial={"priority": job.priority, "max_slots": job.max_slots}))


@require_safe
def job_detail_live(request: HttpRequest, job_id: int) -> JsonResponse:
    """Return the job's state for a page whose live chain breaks or whose websockets do not get through."""
    return JsonResponse(job_live(job_or_404(request.user, job_id)))


@require_safe
def job_curves(request: HttpRequest, job_id: int) -> JsonResponse:
    """Return a newer figure of the metrics: for when the job reports one that the page did not know."""
    job = job_or_404(request.user, job_id)
    return JsonResponse(curves_figure(as_curves(thinned_metrics(job)), reverse("jobs:curves", args=[job.pk])))


@require_safe
def job_part(request: HttpRequest, job_id: int, part: str) -> HttpResponse:
    """A part of the page anew, while somebody looks at it."""
    job = job_or_404(request.user, job_id)
    return render(request, f"jobs/job/_{part}.html", {"job": job, **_PARTS[part](job)})


@require_POST
def job_change(request: HttpRequest, job_id: int) -> HttpResponse:
    job = job_or_404(request.user, job_id)
    form = ChangeForm(request.POST)
    if form.is_valid():
        try:
            events = actions.change_job(job.pk, JobChange(**form.cleaned_data), request.user.get_username())
        except UserError as error:
            show_error(form, error)
        else:
            say_changed(request, job, events)
            return redirect("jobs:detail", job.pk)
    return _job_page(request, job, form)


@require_POST
def job_act(request: HttpRequest, job_id: int, action: str) -> HttpResponse:
    job = job_or_404(request.user, job_id)
    act, done = _ACTIONS[action]
    try:
        act(job.pk, request.user.get_username())
    except UserError as error:
        messages.error(request, error.message)
    else:
        messages.success(request, done)
    return redirect("jobs:detail", job.pk)


@require_POST
def job_clone(request: HttpRequest, job_id: int) -> HttpResponse:
    job = job_or_404(request.user, job_id)
    try:
        copy = actions.clone(job, login_user(request))
    except UserError as error:
        messages.error(request, error.message)
        return redirect("jobs:detail", job.pk)
    messages.success(request, "Submitted again, with the code and the settings of then.")
    return redirect("jobs:detail", copy.pk)


def _job_page(request: HttpRequest, job: Job, form: ChangeForm) -> HttpResponse:
    page = job_page(job)
    context = {
        "section": "jobs",
        "crumbs": [LIST_CRUMB, (job.name, None)],
        "job": job,
        "page": page,
        "form": form,
        "changes": undoable_changes(job),
        "tabs": JOB_TABS,
        "refusals": refusals_by_state(),
        "parameters": parameters_as_text(job.parameters),
        "arguments": shlex.join(job.arguments),
        "tide": tide_figure([page.band], job.max_slots, pool=False),
        "advice": job_advice(job, page.curves),
        **_ranks(job),
        "metrics": curves_figure(page.curves, reverse("jobs:curves", args=[job.pk])),
        "tide_columns": TIDE_COLUMNS,
        **_words_of_no_metrics(job),
        "files": code_files(job),
        "shown": shown_code(job, request.GET.get("file", job.model.entry_point)),
        "newest": versions(job.model.model)[0].number,
    }
    if not job.elastic:
        context["stop_words"] = stop_words(job.instance_group, resumable=is_resumable(job))
    return render(request, "jobs/job/page.html", context)


def _ranks(job: Job) -> dict[str, Any]:
    """Processes, the newest first, those that run before those that ended."""
    ranks = [rank | {"started_at": datetime.fromisoformat(rank["started_at"])} for rank in reversed(rank_list(job))]
    ranks.sort(key=lambda rank: rank["exit"] is not None)
    is_virtual = any(rank["gpu"] and rank["gpu"]["virtual"] for rank in ranks)
    return {"ranks": ranks[:_MAX_RANKS], "rank_count": len(ranks), "has_virtual_gpus": is_virtual}


def _results(job: Job) -> dict[str, Any]:
    return {"checkpoints": Checkpoint.objects.filter(job=job)[:_MAX_CHECKPOINTS], "results": result_files(job)}


#: Parts of a job's page that are fetched while somebody looks at them, and what each shows.
_PARTS: dict[str, Callable[[Job], dict[str, Any]]] = {
    "advice": lambda job: {"advice": job_advice(job)},
    "ranks": _ranks,
    "results": _results,
}


def _words_of_no_metrics(job: Job) -> dict[str, str]:
    now, over = (_NO_STEP, _NO_STEP_OVER) if job.elastic else (_NO_METRICS, _NO_METRICS)
    if validation_of(job) is not None:
        now, over = _NO_SPEED, _NO_SPEED_OVER
    return {"no_metrics": now, "no_metrics_over": over}
