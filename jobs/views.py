"""Pages of the jobs: list, train, and one job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from jobs import actions
from jobs.actions import Submission
from jobs.forms import ChangeForm, TrainForm
from jobs.gangs import is_resumable, stop_words
from jobs.models import Job
from jobs.page_queries import JobFilter, filtered_jobs, job_live, job_page, usable_groups
from jobs.queries import visible_jobs
from jobs.states import JobState
from jobs.train_page import beginnings, chosen_beginning, train_choices, usual_values
from webapp.lib.charts import metrics_figure, tide_figure
from webapp.lib.errors import UserError
from webapp.lib.formfields import parameters_as_text, show_error
from webapp.lib.live import CLUSTER, current_seqs
from webapp.lib.pages import login_user, or_404, page_of

__all__ = ["job_act", "job_change", "job_clone", "job_detail", "job_detail_live", "job_list", "train"]

LIST_CRUMB = ("Jobs", "/jobs/")
TIDE_COLUMNS = ("Time", "Job", "GPUs", "Why", "Pause (ms)")
METRIC_COLUMNS = ("Step", "Training loss", "Test loss", "Training accuracy (%)", "Test accuracy (%)")
STATE_CHOICES = [("", "All"), ("active", "Not over"), ("finished", "Over"), *[(s, s.capitalize()) for s in JobState]]

#: What buttons of a job's page do, and what is said when it is done.
_ACTIONS: dict[str, tuple[Callable[[int, str], Job], str]] = {
    "cancel": (actions.cancel, "The training is being stopped."),
    "suspend": (actions.suspend, "The training stops after the step under way: its GPUs go to others."),
    "resume": (actions.resume, "The training waits for GPUs again."),
}

_NO_STEP = "No step is done yet. Loss and accuracy appear after the first one."
_NO_STEP_OVER = "It did no step, so there is no loss or accuracy."
#: Of a script that is not elastic: a single process may have a session.
_NO_METRICS = "Its script reports no steps, so there is nothing to draw: what it prints is in its log."


@require_safe
def job_list(request: HttpRequest) -> HttpResponse:
    wanted = JobFilter(state=request.GET.get("state", ""), text=request.GET.get("q", ""))
    seq = current_seqs([CLUSTER])[CLUSTER]
    context = {
        "section": "jobs",
        "crumbs": [("Jobs", None)],
        "wanted": wanted,
        "states": STATE_CHOICES,
        "page": page_of(request, filtered_jobs(request.user, wanted)),
        "live": {"seq": seq},
    }
    return render(request, "jobs/list.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def train(request: HttpRequest) -> HttpResponse:
    groups = usable_groups(request.user)
    choices = train_choices(groups)
    offered = beginnings(login_user(request))
    form = TrainForm(request.POST or None, groups=groups, beginnings=offered, initial=_train_initial(request, choices))
    if request.method == "POST" and form.is_valid():
        try:
            job = actions.submit(_submission(form.cleaned_data), login_user(request))
        except UserError as error:
            show_error(form, error)
        else:
            return redirect("jobs:detail", job.pk)
    context = {
        "section": "jobs",
        "crumbs": [LIST_CRUMB, ("Train", None)],
        "form": form,
        "choices": choices,
    }
    return render(request, "jobs/train.html", context)


@require_safe
def job_detail(request: HttpRequest, job_id: int) -> HttpResponse:
    job = or_404(visible_jobs(request.user).filter(pk=job_id).first())
    return _job_page(request, job, ChangeForm(initial={"priority": job.priority, "max_slots": job.max_slots}))


@require_safe
def job_detail_live(request: HttpRequest, job_id: int) -> JsonResponse:
    """What a job's page fetches when its live chain breaks or websockets do not get through."""
    return JsonResponse(job_live(or_404(visible_jobs(request.user).filter(pk=job_id).first())))


@require_POST
def job_change(request: HttpRequest, job_id: int) -> HttpResponse:
    job = or_404(visible_jobs(request.user).filter(pk=job_id).first())
    form = ChangeForm(request.POST)
    if form.is_valid():
        try:
            _change(job, form.cleaned_data, login_user(request))
        except UserError as error:
            show_error(form, error)
        else:
            messages.success(request, "Changed: the scheduler decides again at once.")
            return redirect("jobs:detail", job.pk)
    return _job_page(request, job, form)


@require_POST
def job_act(request: HttpRequest, job_id: int, action: str) -> HttpResponse:
    job = or_404(visible_jobs(request.user).filter(pk=job_id).first())
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
    job = or_404(visible_jobs(request.user).filter(pk=job_id).first())
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
        "parameters": parameters_as_text(job.parameters),
        "tide": tide_figure([page.band], job.max_slots, pool=False),
        "metrics": metrics_figure(page.samples),
        "tide_columns": TIDE_COLUMNS,
        "metric_columns": METRIC_COLUMNS,
        "no_metrics": _NO_STEP if job.elastic else _NO_METRICS,
        "no_metrics_over": _NO_STEP_OVER if job.elastic else _NO_METRICS,
    }
    if not job.elastic:
        context["stop_words"] = stop_words(job.instance_group, resumable=is_resumable(job))
    return render(request, "jobs/detail.html", context)


@transaction.atomic
def _change(job: Job, values: dict[str, Any], user: User) -> None:
    """Both or none."""
    if values["priority"] != job.priority:
        actions.change_priority(job.pk, values["priority"], user.get_username())
    if values["max_slots"] != job.max_slots:
        actions.change_max_slots(job.pk, values["max_slots"], user.get_username())


def _train_initial(request: HttpRequest, choices: dict[str, Any]) -> dict[str, Any]:
    stamp = timezone.now().strftime("%Y%m%d%H%M%S")
    usual = usual_values(choices, request.GET.get("model", ""))
    wanted = {"dataset": request.GET["dataset"]} if request.GET.get("dataset", "").isdecimal() else {}
    return {"name": f"training-{stamp}", **usual, **wanted, "start_from": request.GET.get("start_from", "")}


def _submission(values: dict[str, Any]) -> Submission:
    return Submission(
        name=values["name"],
        model=values["model"].name,
        dataset=values["dataset"].name,
        instance_group=values["instance_group"].name,
        min_slots=values["min_slots"],
        max_slots=values["max_slots"],
        priority=values["priority"],
        parameters=values["parameters"],
        exactness=values["exactness"],
        virtual_ranks=values["virtual_ranks"],
        checkpoint_seconds=values["checkpoint_seconds"],
        checkpoints_kept=values["checkpoints_kept"],
        **chosen_beginning(values["start_from"]),
    )
