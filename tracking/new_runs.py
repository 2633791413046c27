"""Runs in MLflow, found by a tag or made: what those of trainings and of studies share."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from datasets.models import DatasetVersion
from jobs.models import InstanceGroup
from models_registry.models import RegisteredModelVersion
from tracking.upstream import MlflowServer, Refused

__all__ = ["experiment_of", "find_run", "make_run", "metric_key", "parameters_of_inputs", "tags_of"]

_MISSING = "RESOURCE_DOES_NOT_EXIST"
_EXISTS = "RESOURCE_ALREADY_EXISTS"
#: Largest length of a parameter's value in MLflow, and of parameters per call.
_MAX_VALUE, _MAX_PARAMETERS = 6000, 100


def experiment_of(server: MlflowServer, user: str, name: str) -> str:
    """Return the id of the user's experiment, made if it does not exist."""
    try:
        return str(server.get(user, "experiments/get-by-name", experiment_name=name)["experiment"]["experiment_id"])
    except Refused as error:
        if error.code != _MISSING:
            raise
    try:
        return str(server.post(user, "experiments/create", {"name": name})["experiment_id"])
    except Refused as error:
        if error.code != _EXISTS:
            raise
    return str(server.get(user, "experiments/get-by-name", experiment_name=name)["experiment"]["experiment_id"])


def find_run(server: MlflowServer, user: str, experiment: str, tag: str, value: str) -> str | None:
    """Return the run with this tag, or None."""
    question = {"experiment_ids": [experiment], "filter": f"tags.`{tag}` = '{value}'", "max_results": 1}
    found = server.post(user, "runs/search", question).get("runs", [])
    return str(found[0]["info"]["run_id"]) if found else None


def make_run(
    server: MlflowServer,
    user: str,
    experiment: str,
    *,
    name: str,
    began: datetime,
    tags: Mapping[str, str],
    parameters: Mapping[str, object],
) -> str:
    """Make a run, and return its id. Parameters without a value are left out."""
    values = {
        "experiment_id": experiment,
        "run_name": name[:250],
        "start_time": int(began.timestamp() * 1000),
        "tags": [{"key": key, "value": value} for key, value in tags.items()],
    }
    run = str(server.post(user, "runs/create", values)["run"]["info"]["run_id"])
    texts = {metric_key(name): str(value) for name, value in parameters.items() if str(value)}
    params = [{"key": key, "value": value[:_MAX_VALUE]} for key, value in texts.items()]
    for first in range(0, len(params), _MAX_PARAMETERS):
        batch = params[first : first + _MAX_PARAMETERS]
        server.post(user, "runs/log-batch", {"run_id": run, "params": batch})
    return run


def tags_of(owner: User, model: RegisteredModelVersion, note: str) -> dict[str, str]:
    """Return the tags by which MLflow's pages name a run's owner, its code, and this site."""
    return {
        "mlflow.user": owner.get_username(),
        "mlflow.source.name": model.entry_point,
        "mlflow.source.type": "JOB",
        "mlflow.note.content": note,
    }


def parameters_of_inputs(
    model: RegisteredModelVersion, dataset: DatasetVersion | None, group: InstanceGroup
) -> dict[str, Any]:
    """Return the parameters that name what is read and run, with its digests."""
    named = {
        "model": model.model.name,
        "model_version": model.number,
        "code_sha256": model.digest,
        "instance_group": group.name,
    }
    if dataset is None:
        return named
    of_dataset = {"dataset": dataset.dataset.name, "dataset_version": dataset.number, "dataset_sha256": dataset.digest}
    return named | of_dataset


def metric_key(name: str) -> str:
    """Return a name as MLflow takes it."""
    return "".join(letter if letter.isalnum() or letter in "_-. :/" else "_" for letter in name)[:250]
