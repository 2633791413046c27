"""The page that starts a training, its choices, previews while the user types, and the undoing of changes."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from core.archive import ARCHIVE_SUFFIXES
from core.errors import UserError
from core.file_sources import given_source
from core.pages import Undo, carried_out, done, login_user, say
from core.parameters import parameters_as_text
from core.uploads import WEIGHTS_SUFFIXES, finished
from datasets.models import Dataset
from jobs import actions
from jobs.actions import Submission
from jobs.actions.submission import Checked, check, check_clone
from jobs.control.checkpoints import stop_words
from jobs.files.validation_runs import validation_of
from jobs.models import Checkpoint, InstanceGroup, Job, JobEvent
from jobs.options import MASK, MAX_PRIORITY, Option, masked, requested_values, takes_several
from jobs.pages.crumbs import LIST_CRUMB
from jobs.pages.queries import job_or_404
from jobs.pages.train.clone_names import clone_name
from jobs.pages.train.fields import parameter_fields
from jobs.pages.train.forms import ON_PAGE, TrainForm
from jobs.pages.train.sweeps import Sweep, start_sweep
from jobs.queries.disk_room import disk_room
from jobs.queries.groups import usable_groups
from jobs.queries.jobs import own_tags, visible_jobs
from jobs.queries.secrets import secret_names, who_else_reads
from models_registry.actions import register_script
from models_registry.code_inspection import EntryPointWanted
from models_registry.models import RegisteredModelVersion
from models_registry.queries import models
from models_registry.script_declarations import Continues
from workers.queries import capacity

__all__ = [
    "beginnings",
    "checked_submission",
    "job_undo",
    "posted_form",
    "say_changed",
    "train",
    "train_code",
]

#: Label of the weights to begin with that the user has uploaded.
_UPLOADED = "Weights from an uploaded file"
#: Options whose texts are shown masked.
_VARIABLES = [option for option in ON_PAGE if option.is_variables]
#: Number of newest trainings, and of their checkpoints, that are offered to start from.
_MAX_BEGINNINGS = 100
#: Number of known tags that are suggested.
_MOST_TAGS = 200
#: Number of stopped instance groups that an administrator is offered to start.
_MOST_STOPPED = 10

#: Value of start_from for the initial state of the cloned training.
_AGAIN = "again"

_SHARING = {
    InstanceGroup.Policy.FIFO: "The training that was submitted first gets GPUs first.",
    InstanceGroup.Policy.PRIORITY: "The training with the higher priority gets GPUs first.",
    InstanceGroup.Policy.FAIRSHARE: "Trainings share the GPUs in proportion to their priorities.",
    InstanceGroup.Policy.GOODPUT: "GPUs go to the trainings that they speed up most.",
}


@dataclass(frozen=True)
class _Opened:
    """Initial content of the page."""

    groups: list[InstanceGroup]
    #: Model number as text -> its newest version, or the version of the cloned training.
    versions: Mapping[str, RegisteredModelVersion]
    clone: Job | None


@require_http_methods(["GET", "HEAD", "POST"])
def train(request: HttpRequest) -> HttpResponse:
    opened = _opened(request, request.POST or request.GET)
    choices = _train_choices(opened, stamp=timezone.now().strftime("%Y%m%d%H%M%S"))
    form = _train_form(request, request.POST or None, opened, initial=_train_initial(request, opened, choices))
    started = carried_out(request, form, lambda: _start(form.cleaned_data, opened.clone, login_user(request)))
    if started is not None:
        return redirect(started)
    context = {
        "section": "jobs",
        "crumbs": [LIST_CRUMB, ("Train", None)],
        "form": form,
        "clone": opened.clone,
        "choices": choices,
        "stopped_groups": [] if opened.groups else InstanceGroup.objects.order_by("name")[:_MOST_STOPPED],
        "typed_parameters": form.typed_parameters,
        "secrets_warning": who_else_reads(),
        "disk_warning": disk_room(login_user(request)).warning,
        "known_tags": own_tags(request.user)[:_MOST_TAGS],
        "weights_suffixes": ",".join(WEIGHTS_SUFFIXES),
        "uploaded_label": _UPLOADED,
        "code_suffixes": ",".join((".py", *ARCHIVE_SUFFIXES)),
        "max_bytes": settings.TIDEPOOL_UPLOAD_MAX_BYTES,
    }
    return render(request, "jobs/train/page.html", context)


@require_POST
def train_code(request: HttpRequest) -> JsonResponse:
    """Register a script or a folder of scripts for the Train form; returns the model, or the scripts to choose from.

    Takes `file` or `path`, and the `entry_point` that the user chose.
    """
    source = given_source(request.POST.get("path", "").strip(), request.FILES.get("file"))
    try:
        version = register_script(
            login_user(request), replace(source, unwrap=True), entry_point=request.POST.get("entry_point", "")
        )
    except EntryPointWanted as error:
        return JsonResponse({"error": error.message, "scripts": error.scripts})
    except UserError as error:
        return JsonResponse({"error": error.message}, status=error.status)
    return JsonResponse({"model": version.model_id, **_model(version, None), "sentence": _taken_words(version)})


@require_POST
def job_undo(request: HttpRequest, job_id: int) -> HttpResponse:
    """Undo all changes of the events `events` (numbers separated by spaces), or none."""
    job = job_or_404(request.user, job_id)
    numbers = [int(word) for word in request.POST.get("events", "").split() if word.isdecimal() and len(word) < 10]
    if done(request, lambda: actions.undo_changes(job.pk, numbers, request.user.get_username())):
        say(request, "The change was undone. The scheduler applies it at once.")
    return redirect("jobs:detail", job.pk)


@dataclass(frozen=True)
class PostedForm:
    """A submitted Train form, and the training that it clones."""

    form: TrainForm
    clone: Job | None


def posted_form(request: HttpRequest) -> PostedForm:
    opened = _opened(request, request.POST)
    return PostedForm(_train_form(request, request.POST, opened), opened.clone)


def say_changed(request: HttpRequest, job: Job, events: Sequence[JobEvent]) -> None:
    if not events:
        say(request, "Nothing was changed: the training already has this priority, these GPUs and this time limit.")
        return
    undo = Undo(reverse("jobs:undo", args=[job.pk]), {"events": " ".join(str(event.seq) for event in events)})
    say(request, "The training was changed. The scheduler applies the change at once.", undo=undo)


def _opened(request: HttpRequest, values: QueryDict) -> _Opened:
    newest: Iterable[Any] = models(request.user)
    versions = {str(model.pk): model.latest[0] for model in newest if model.latest}
    number = values.get("clone", "")
    job = job_or_404(request.user, int(number)) if number.isdecimal() and len(number) < 19 else None
    if job is not None and validation_of(job) is None:
        return _Opened(usable_groups(request.user), versions | {str(job.model.model_id): job.model}, job)
    return _Opened(usable_groups(request.user), versions, None)


def _train_form(request: HttpRequest, data: Any, opened: _Opened, **values: Any) -> TrainForm:
    offered = beginnings(login_user(request))
    if opened.clone is not None and opened.clone.starts_from != Job.StartsFrom.NOTHING:
        offered = [("Cloned training", [(_AGAIN, "Initial state of the cloned training")]), *offered]
    # A clone asks for its training's secrets even if the user has none of them: the submission says what is missing.
    asked = opened.clone.secrets.split() if opened.clone is not None else []
    secrets = sorted({*secret_names(login_user(request), opened.groups), *asked})
    return TrainForm(
        data, groups=opened.groups, beginnings=offered, versions=opened.versions, secrets=secrets, **values
    )


def _train_initial(request: HttpRequest, opened: _Opened, choices: dict[str, Any]) -> dict[str, Any]:
    if opened.clone is not None:
        name = _clone_name(opened.clone, login_user(request), choices["stamp"])
        return {**_initial_of_clone(opened.clone), "name": name}
    usual = _usual_values(choices, request.GET.get("model", ""), request.GET.get("group", ""))
    wanted = {"dataset": request.GET["dataset"]} if request.GET.get("dataset", "").isdecimal() else {}
    return {"name": choices["proposed_name"], **usual, **wanted, "start_from": request.GET.get("start_from", "")}


def _clone_name(job: Job, user: User, stamp: str) -> str:
    taken = visible_jobs(user).filter(name__startswith=f"{job.name}-").values_list("name", flat=True)
    longest = Job._meta.get_field("name").max_length
    return clone_name(job.name, set(taken), stamp=stamp, longest=longest or len(job.name))


def _initial_of_clone(job: Job) -> dict[str, Any]:
    fields = {field.name for field in parameter_fields(job.model)}
    own = {name: value for name, value in job.parameters.items() if name in fields}
    others = {name: value for name, value in job.parameters.items() if name not in fields}
    shown = parameters_as_text(own).splitlines()
    return {
        **requested_values(job),
        **{f"parameter.{name}": line.partition(" = ")[2] for name, line in zip(own, shown, strict=True)},
        "parameters": parameters_as_text(others),
        "arguments": shlex.join(job.arguments),
        **{option.name: parameters_as_text(masked(getattr(job, option.name))) for option in _VARIABLES},
        "model": job.model.model_id,
        "dataset": job.dataset.dataset_id if job.dataset else None,
        "instance_group": job.instance_group_id,
        "start_from": "" if job.starts_from == Job.StartsFrom.NOTHING else _AGAIN,
        "clone": job.pk,
    }


def _start(values: dict[str, Any], job: Job | None, user: User) -> str:
    """Submit a training, or start a sweep; return the address of its page."""
    given = _submission(values, job)
    if values["sweep"]:
        return start_sweep(Sweep(given, values["sweep"], values["metric"], values["goal"]), user)
    return reverse("jobs:detail", args=[_submit(given, values, job, user).pk])


def _submit(given: Submission, values: dict[str, Any], job: Job | None, user: User) -> Job:
    if job is not None and _is_same_model(values, job):
        return actions.clone(job, user, given, begins_again=values["start_from"] == _AGAIN)
    return actions.submit(given, user)


def checked_submission(values: dict[str, Any], job: Job | None, user: User) -> Checked:
    given = _submission(values, job)
    if job is not None and _is_same_model(values, job):
        return check_clone(job, user, given, begins_again=values["start_from"] == _AGAIN)
    return check(given, user)


def _is_same_model(values: dict[str, Any], job: Job) -> bool:
    return bool(values["model"].pk == job.model.model_id)


def _submission(values: dict[str, Any], job: Job | None) -> Submission:
    """Return the submission. `job`: the cloned training, which provides the options without a field on the page."""
    kind, _, text = values["start_from"].partition("-")
    number = int(text or 0)
    begins: dict[str, dict[str, Any]] = {
        "": {},
        _AGAIN: {},
        "weights": {"initial_weights": number},
        "checkpoint": {"checkpoint": number},
        "checkpointweights": {"initial_weights": {"checkpoint": number}},
        "upload": {"initial_weights": {"upload": number}},
    }
    options = requested_values(job) if job is not None else {}
    options |= {option.name: values[option.name] for option in ON_PAGE}
    options |= {option.name: _unmasked(options[option.name], option, job) for option in _VARIABLES}
    return Submission(
        name=values["name"],
        model=job.model if job is not None and _is_same_model(values, job) else values["model"].name,
        dataset=values["dataset"].name if values["dataset"] else None,
        instance_group=values["instance_group"].name,
        parameters=values["parameters"],
        arguments=values["arguments"],
        tags=values["tags"],
        skip_unusable_requirements=values["skip_unusable_requirements"],
        **options,
        **begins[kind],
    )


def _unmasked(variables: dict[str, str], option: Option, job: Job | None) -> dict[str, str]:
    """Return the variables, with the job's value for each one that is still masked."""
    before = getattr(job, option.name) if job is not None else {}
    return {name: before.get(name, value) if value == MASK else value for name, value in variables.items()}


def _train_choices(opened: _Opened, stamp: str) -> dict[str, Any]:
    """Return models and instance groups by their values in the form; proposed names contain `stamp`."""
    datasets = dict(Dataset.objects.values_list("name", "pk"))
    return {
        "models": {key: _model(version, datasets) for key, version in opened.versions.items()},
        "groups": {str(group.pk): _group(group) for group in opened.groups},
        "stamp": stamp,
        "proposed_name": f"training-{stamp}",
    }


def _usual_values(choices: dict[str, Any], model: str, group: str = "") -> dict[str, Any]:
    """Return the initial values: the requested or only model, its default dataset, and its number of GPUs: all of the
    group for an elastic one."""
    known = choices["models"]
    if model not in known:
        model = next(iter(known)) if len(known) == 1 else ""
    values: dict[str, Any] = {"model": model, "dataset": known[model]["dataset"]} if model else {}
    if model:
        choices["proposed_name"] = values["name"] = f"{known[model]['name']}-{choices['stamp']}"
    if choices["groups"]:
        chosen = group if group in choices["groups"] else next(iter(choices["groups"]))
        usual = choices["groups"][chosen]
        most = (known[model]["processes"] if model else None) or max(1, usual["capacity"])
        values |= {"instance_group": chosen, "max_slots": most, "priority": usual["priority"]}
    return values


def beginnings(user: User) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return groups of choices to start from: uploaded files, and results of earlier trainings."""
    has_checkpoint = Exists(Checkpoint.objects.filter(job=OuterRef("pk"), problem=""))
    jobs = visible_jobs(user).filter(Q(run__completed_attempt__gt=0) | has_checkpoint, validation=None)
    # Ordered like an index: only the newest of very many trainings are read.
    trained = jobs.order_by("-submitted_at", "-id").values_list("pk", "name", "run__step")[:_MAX_BEGINNINGS]
    names = {job: name for job, name, _ in trained}
    saved = Checkpoint.objects.filter(job__in=names, problem="").order_by("-job_id", "-step")[:_MAX_BEGINNINGS]
    weights = [(f"weights-{job}", f"{name} ({job}), after {step} steps") for job, name, step in trained]
    points = [(point.pk, f"{names[point.job_id]} ({point.job_id}), step {point.step}") for point in saved]
    files = [(f"upload-{file.pk}", file.name) for file in finished(user, WEIGHTS_SUFFIXES)]
    groups = [
        (_UPLOADED, files),
        ("Weights of an earlier training", weights),
        ("Resume from a checkpoint", [(f"checkpoint-{number}", words) for number, words in points]),
        ("Weights of a checkpoint only", [(f"checkpointweights-{number}", words) for number, words in points]),
    ]
    return [group for group in groups if group[1]]


def _model(version: RegisteredModelVersion, datasets: Mapping[str, int] | None) -> dict[str, Any]:
    return {
        "name": version.model.name,
        "description": version.model.description,
        "engine": version.engine,
        "uses_several_gpus": version.declared.uses_several_gpus,
        # A size that the user did not ask for: all GPUs of the group for an elastic training only.
        "processes": None
        if version.engine == RegisteredModelVersion.Engine.ELASTIC
        else version.declared.processes or 1,
        "reads_data": version.declared.reads_data,
        "layers": version.declared.layers,
        "continues": version.declared.continues,
        "dataset": (datasets or {}).get(version.default_dataset),
        "parameters": [field.as_json() for field in parameter_fields(version)],
    }


_TRAINS = {
    RegisteredModelVersion.Engine.ELASTIC: "The script is elastic: trainings grow and shrink while they run.",
    RegisteredModelVersion.Engine.SINGLE: "The script is not elastic: a training is one process on 1 GPU.",
    RegisteredModelVersion.Engine.FIXED: "The script trains in several processes and keeps its GPUs from start to end.",
}


def _taken_words(version: RegisteredModelVersion) -> str:
    """Describe the registered code."""
    data = (
        "The script reads a dataset: choose one below."
        if version.declared.reads_data
        else "The script reads no dataset."
    )
    trains = _TRAINS[RegisteredModelVersion.Engine(version.engine)]
    if takes_several(version, "") and version.engine == RegisteredModelVersion.Engine.SINGLE:
        trains = "The script is not elastic: a training is one process with all its GPUs, on one host."
    return f"{version.entry_point} is version {version.number} of your model {version.model.name}. {trains} {data}"


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
        "takes_gpus": group.takes_gpus,
        # For each way in which a script continues.
        "stopping": {continues: stop_words(group, continues=continues) for continues in get_args(Continues)},
        "priority": group.default_priority,
    }
