"""The choices and first values of the page that starts a training."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q

from core.parameters import Scalar, kind_of
from core.uploads import WEIGHTS_SUFFIXES, finished
from datasets.models import Dataset
from jobs.control.fixed_size import stop_words
from jobs.models import Checkpoint, InstanceGroup
from jobs.options import MAX_PRIORITY
from jobs.queries.jobs import visible_jobs
from models_registry.queries import models
from workers.queries import capacity

__all__ = ["beginnings", "chosen_beginning", "declared_parameters", "train_choices", "usual_values"]

#: As many of the newest trainings, and of the checkpoints of those, are offered to start from.
_MAX_BEGINNINGS = 100

_SHARING = {
    InstanceGroup.Policy.FIFO: "Who came first gets GPUs first.",
    InstanceGroup.Policy.PRIORITY: "Who has the higher priority gets GPUs first.",
    InstanceGroup.Policy.FAIRSHARE: "Trainings share the GPUs in proportion to their priorities.",
}


def train_choices(groups: Iterable[InstanceGroup], stamp: str) -> dict[str, Any]:
    """Return models and instance groups by the form's value for them; names are proposed with `stamp`."""
    datasets = dict(Dataset.objects.values_list("name", "pk"))
    return {
        "models": {str(model.pk): _model(model, datasets) for model in models()},
        "groups": {str(group.pk): _group(group) for group in groups},
        "stamp": stamp,
        "proposed_name": f"training-{stamp}",
    }


def declared_parameters() -> dict[str, dict[str, Scalar]]:
    """Return the declared parameters of each model's newest version, by the form's value for the model."""
    newest: Iterable[Any] = models()
    return {str(model.pk): model.latest[0].parameters for model in newest if model.latest}


def usual_values(choices: dict[str, Any], model: str, group: str = "") -> dict[str, Any]:
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


def chosen_beginning(value: str) -> dict[str, Any]:
    """Return the fields of a submission for a choice of `beginnings`."""
    kind, _, number = value.partition("-")
    match kind:
        case "weights":
            return {"initial_weights": int(number)}
        case "checkpoint":
            return {"checkpoint": int(number)}
        case "checkpointweights":
            return {"initial_weights": {"checkpoint": int(number)}}
        case "upload":
            return {"initial_weights": {"upload": int(number)}}
    return {}


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
    return {
        "name": group.name,
        "capacity": capacity(group.resource_group),
        "sharing": f"{_SHARING[InstanceGroup.Policy(group.policy)]}{_bounds(group)}",
        "lowest_priority": group.lowest_priority,
        "highest_priority": group.highest_priority,
        "preemption": group.preemption,
        "stopping": stop_words(group),
        "priority": group.default_priority,
    }


def _bounds(group: InstanceGroup) -> str:
    if (group.lowest_priority, group.highest_priority) == (1, MAX_PRIORITY):
        return ""
    return f" It allows priorities from {group.lowest_priority} to {group.highest_priority}."
