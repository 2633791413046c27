"""The page that starts a training, previews while one types, and the undoing of changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from core.errors import UserError
from core.formfields import show_error
from core.notices import Undo, say
from core.pages import login_user
from core.uploads import WEIGHTS_SUFFIXES
from jobs import actions
from jobs.actions import JobChange, Submission
from jobs.insight.previews import preview_change, preview_submission
from jobs.models import InstanceGroup, Job, JobEvent
from jobs.pages.queries import job_or_404, usable_groups
from jobs.pages.train.forms import ON_PAGE, ChangeForm, TrainForm
from jobs.pages.train.queries import beginnings, chosen_beginning, declared_parameters, train_choices, usual_values

__all__ = ["job_change_preview", "job_undo", "say_changed", "train", "train_preview"]


@require_http_methods(["GET", "HEAD", "POST"])
def train(request: HttpRequest) -> HttpResponse:
    groups = usable_groups(request.user)
    choices = train_choices(groups, stamp=timezone.now().strftime("%Y%m%d%H%M%S"))
    form = _train_form(request, request.POST or None, groups, initial=_train_initial(request, choices))
    if request.method == "POST" and form.is_valid():
        try:
            job = actions.submit(_submission(form.cleaned_data), login_user(request))
        except UserError as error:
            show_error(form, error)
        else:
            return redirect("jobs:detail", job.pk)
    context = {
        "section": "jobs",
        "crumbs": [("Jobs", "/jobs/"), ("Train", None)],
        "form": form,
        "choices": choices,
        "typed_parameters": form.typed_parameters,
        "weights_suffixes": ",".join(WEIGHTS_SUFFIXES),
        "max_bytes": settings.TIDEPOOL_UPLOAD_MAX_BYTES,
    }
    return render(request, "jobs/train/page.html", context)


@require_POST
def train_preview(request: HttpRequest) -> JsonResponse:
    """Preview what the Train form would do as it is filled in now."""
    form = _train_form(request, request.POST, usable_groups(request.user))
    user = login_user(request)
    return _preview(form, lambda: preview_submission(_submission(form.cleaned_data), user))


@require_POST
def job_change_preview(request: HttpRequest, job_id: int) -> JsonResponse:
    job = job_or_404(request.user, job_id)
    form, user = ChangeForm(request.POST), login_user(request)
    return _preview(form, lambda: preview_change(job, JobChange(**form.cleaned_data), user))


@require_POST
def job_undo(request: HttpRequest, job_id: int) -> HttpResponse:
    """Undo what the events `events` (numbers separated by spaces) changed: all of it or nothing."""
    job = job_or_404(request.user, job_id)
    numbers = [int(word) for word in request.POST.get("events", "").split() if word.isdecimal() and len(word) < 10]
    try:
        actions.undo_changes(job.pk, numbers, request.user.get_username())
    except UserError as error:
        messages.error(request, error.message)
    else:
        say(request, "It is as it was before: the scheduler decides again at once.")
    return redirect("jobs:detail", job.pk)


def say_changed(request: HttpRequest, job: Job, events: Sequence[JobEvent]) -> None:
    if not events:
        say(request, "Nothing was changed: these are its priority and its GPUs already.")
        return
    undo = Undo(reverse("jobs:undo", args=[job.pk]), {"events": " ".join(str(event.seq) for event in events)})
    say(request, "Changed: the scheduler decides again at once.", undo=undo)


def _preview(form: TrainForm | ChangeForm, answer: Callable[[], dict[str, Any]]) -> JsonResponse:
    """Answer with the preview, or with what does not fit yet: while the user types, that is no error of the request."""
    if form.is_valid():
        try:
            return JsonResponse({"preview": answer()})
        except UserError as error:
            show_error(form, error)
    return JsonResponse({"errors": {name: list(sentences) for name, sentences in form.errors.items()}})


def _train_form(request: HttpRequest, data: Any, groups: list[InstanceGroup], **values: Any) -> TrainForm:
    offered = beginnings(login_user(request))
    return TrainForm(data, groups=groups, beginnings=offered, declared=declared_parameters(), **values)


def _train_initial(request: HttpRequest, choices: dict[str, Any]) -> dict[str, Any]:
    usual = usual_values(choices, request.GET.get("model", ""), request.GET.get("group", ""))
    wanted = {"dataset": request.GET["dataset"]} if request.GET.get("dataset", "").isdecimal() else {}
    return {"name": choices["proposed_name"], **usual, **wanted, "start_from": request.GET.get("start_from", "")}


def _submission(values: dict[str, Any]) -> Submission:
    return Submission(
        name=values["name"],
        model=values["model"].name,
        dataset=values["dataset"].name,
        instance_group=values["instance_group"].name,
        parameters=values["parameters"],
        **{option.name: values[option.name] for option in ON_PAGE},
        **chosen_beginning(values["start_from"]),
    )
