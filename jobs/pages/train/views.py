"""The page that starts a training, its choices, previews while one types, and the undoing of changes."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from core.errors import UserError
from core.pages import Undo, done, login_user, say, show_error
from core.parameters import kind_of
from core.uploads import WEIGHTS_SUFFIXES, finished
from datasets.models import Dataset
from jobs import actions
from jobs.actions import JobChange, Submission
from jobs.control.checkpoints import stop_words
from jobs.insight.previews import preview_change, preview_submission
from jobs.models import Checkpoint, InstanceGroup, Job, JobEvent
from jobs.options import MAX_PRIORITY
from jobs.pages.queries import job_or_404, usable_groups
from jobs.pages.train.forms import ON_PAGE, ChangeForm, TrainForm
from jobs.queries.jobs import visible_jobs
from models_registry.queries import models
from workers.queries import capacity

__all__ = ["beginnings", "job_change_preview", "job_undo", "say_changed", "train", "train_preview"]

#: As many of the newest trainings, and of the checkpoints of those, are offered to start from.
_MAX_BEGINNINGS = 100

_SHARING = {
    InstanceGroup.Policy.FIFO: "Who came first gets GPUs first.",
    InstanceGroup.Policy.PRIORITY: "Who has the higher priority gets GPUs first.",
    InstanceGroup.Policy.FAIRSHARE: "Trainings share the GPUs in proportion to their priorities.",
}


@require_http_methods(["GET", "HEAD", "POST"])
def train(request: HttpRequest) -> HttpResponse:
    groups = usable_groups(request.user)
    choices = _train_choices(groups, stamp=timezone.now().strftime("%Y%m%d%H%M%S"))
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
    if done(request, lambda: actions.undo_changes(job.pk, numbers, request.user.get_username())):
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
    newest: Iterable[Any] = models()
    declared = {str(model.pk): model.latest[0].parameters for model in newest if model.latest}
    return TrainForm(data, groups=groups, beginnings=beginnings(login_user(request)), declared=declared, **values)


def _train_initial(request: HttpRequest, choices: dict[str, Any]) -> dict[str, Any]:
    usual = _usual_values(choices, request.GET.get("model", ""), request.GET.get("group", ""))
    wanted = {"dataset": request.GET["dataset"]} if request.GET.get("dataset", "").isdecimal() else {}
    return {"name": choices["proposed_name"], **usual, **wanted, "start_from": request.GET.get("start_from", "")}


def _submission(values: dict[str, Any]) -> Submission:
    kind, _, text = values["start_from"].partition("-")
    number = int(text or 0)
    begins: dict[str, dict[str, Any]] = {
        "": {},
        "weights": {"initial_weights": number},
        "checkpoint": {"checkpoint": number},
        "checkpointweights": {"initial_weights": {"checkpoint": number}},
        "upload": {"initial_weights": {"upload": number}},
    }
    return Submission(
        name=values["name"],
        model=values["model"].name,
        dataset=values["dataset"].name,
        instance_group=values["instance_group"].name,
        parameters=values["parameters"],
        **{option.name: values[option.name] for option in ON_PAGE},
        **begins[kind],
    )


def _train_choices(groups: Iterable[InstanceGroup], stamp: str) -> dict[str, Any]:
    """Return models and instance groups by the form's value for them; names are proposed with `stamp`."""
    datasets = dict(Dataset.objects.values_list("name", "pk"))
    return {
        "models": {str(model.pk): _model(model, datasets) for model in models()},
        "groups": {str(group.pk): _group(group) for group in groups},
        "stamp": stamp,
        "proposed_name": f"training-{stamp}",
    }


def _usual_values(choices: dict[str, Any], model: str, group: str = "") -> dict[str, Any]:
    """Return the first values: the model asked for, or the only one, its usual dataset, and all GPUs of the group."""
    known = choices["models"]
    if model not in known:
        model = next(iter(known)) if len(known) == 1 else ""
    values: dict[str, Any] = {"model": model, "dataset": known[model]["dataset"]} if model else {}
    if model:
        choices["proposed_name"] = values["name"] = f"{known[model]['name']}-{choices['stamp']}"
    if choices["groups"]:
        chosen = group if group in choices["groups"] else next(iter(choices["groups"]))
        usual = choices["groups"][chosen]
        values |= {"instance_group": chosen, "max_slots": max(1, usual["capacity"]), "priority": usual["priority"]}
    return values


def beginnings(user: User) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return groups of choices to start from: uploaded files, and what earlier trainings left."""
    has_checkpoint = Exists(Checkpoint.objects.filter(job=OuterRef("pk"), problem=""))
    jobs = visible_jobs(user).filter(Q(run__completed_attempt__gt=0) | has_checkpoint, validation=None)
    # In the order of an index: of very many trainings only the newest are read.
    trained = jobs.order_by("-submitted_at", "-id").values_list("pk", "name", "run__step")[:_MAX_BEGINNINGS]
    names = {job: name for job, name, _ in trained}
    saved = Checkpoint.objects.filter(job__in=names, problem="").order_by("-job_id", "-step")[:_MAX_BEGINNINGS]
    weights = [(f"weights-{job}", f"{name} ({job}), after {step} steps") for job, name, step in trained]
    points = [(point.pk, f"{names[point.job_id]} ({point.job_id}), step {point.step}") for point in saved]
    files = [(f"upload-{file.pk}", file.name) for file in finished(user, WEIGHTS_SUFFIXES)]
    groups = [
        ("The weights in a file that you uploaded", files),
        ("The weights of an earlier training", weights),
        ("Continue a checkpoint", [(f"checkpoint-{number}", words) for number, words in points]),
        ("Only the weights of a checkpoint", [(f"checkpointweights-{number}", words) for number, words in points]),
    ]
    return [group for group in groups if group[1]]


def _model(model: Any, datasets: dict[str, int]) -> dict[str, Any]:
    [version] = model.latest
    return {
        "name": model.name,
        "description": model.description,
        "engine": version.engine,
        "dataset": datasets.get(version.default_dataset),
        "parameters": [
            {"name": name, "kind": kind_of(value), "value": value if isinstance(value, str) else json.dumps(value)}
            for name, value in version.parameters.items()
        ],
    }


def _group(group: InstanceGroup) -> dict[str, Any]:
    bounds = ""
    if (group.lowest_priority, group.highest_priority) != (1, MAX_PRIORITY):
        bounds = f" It allows priorities from {group.lowest_priority} to {group.highest_priority}."
    return {
        "name": group.name,
        "capacity": capacity(group.resource_group),
        "sharing": f"{_SHARING[InstanceGroup.Policy(group.policy)]}{bounds}",
        "lowest_priority": group.lowest_priority,
        "highest_priority": group.highest_priority,
        "preemption": group.preemption,
        "stopping": stop_words(group),
        "priority": group.default_priority,
    }
