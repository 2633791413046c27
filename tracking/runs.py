"""A job's run in MLflow: made once, with what is known of the job when it is submitted."""

from typing import Any

from django.db import transaction
from django.urls import reverse

from jobs.models import Job
from jobs.options import OPTIONS
from tracking.access import experiment_name
from tracking.models import TrackedRun
from tracking.upstream import MlflowServer, Refused

__all__ = ["ensure_run", "metric_key", "note_own_metrics", "run_path"]

_MISSING = "RESOURCE_DOES_NOT_EXIST"
_EXISTS = "RESOURCE_ALREADY_EXISTS"
#: Largest length of a parameter's value in MLflow.
_MAX_VALUE = 6000
#: Names of metrics that are noted of a script.
_MOST_NAMES = 1000
#: The options that shape the results. The environment is none of them: it may hold what others must not read.
_OPTIONS = [name for name, option in OPTIONS.items() if option.shapes_results]


def run_path(run: TrackedRun) -> str:
    """Return the address of the run's page on this site."""
    return f"/mlflow/#/experiments/{run.experiment_id}/runs/{run.run_id}"


def ensure_run(server: MlflowServer, job: Job) -> TrackedRun:
    """Make the job's run in MLflow unless there is one. Raises Away, Refused.

    Needs the job's owner, model, dataset and group. May be called by several at once, and again after it was cut off: a
    run that was made and not noted is found by its tag. No transaction is open while the server is asked.
    """
    known = TrackedRun.objects.filter(job=job).first()
    if known is not None:
        return known
    user = job.owner.get_username()
    experiment = _experiment(server, user, experiment_name(job))
    made = _find(server, user, experiment, job) or _make(server, user, experiment, job)
    run, _ = TrackedRun.objects.get_or_create(job=job, defaults={"run_id": made, "experiment_id": experiment})
    if run.run_id != made:  # somebody else made one at the same moment
        server.post(user, "runs/delete", {"run_id": made})
    return run


def _experiment(server: MlflowServer, user: str, name: str) -> str:
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


def _find(server: MlflowServer, user: str, experiment: str, job: Job) -> str | None:
    question = {"experiment_ids": [experiment], "filter": f"tags.`tidepool.job` = '{job.pk}'", "max_results": 1}
    found = server.post(user, "runs/search", question).get("runs", [])
    return str(found[0]["info"]["run_id"]) if found else None


def _make(server: MlflowServer, user: str, experiment: str, job: Job) -> str:
    tags = {
        "tidepool.job": str(job.pk),
        "mlflow.user": user,
        "mlflow.source.name": job.model.entry_point,
        "mlflow.source.type": "JOB",
        "mlflow.note.content": f"[Training {job.pk} in Tidepool]({reverse('jobs:detail', args=[job.pk])})",
    }
    values = {
        "experiment_id": experiment,
        "run_name": job.name[:250],
        "start_time": int(job.submitted_at.timestamp() * 1000),
        "tags": [{"key": key, "value": value} for key, value in tags.items()],
    }
    run = str(server.post(user, "runs/create", values)["run"]["info"]["run_id"])
    params = [{"key": key, "value": value[:_MAX_VALUE]} for key, value in _parameters(job).items()]
    for first in range(0, len(params), 100):
        server.post(user, "runs/log-batch", {"run_id": run, "params": params[first : first + 100]})
    return run


def _parameters(job: Job) -> dict[str, str]:
    """The script's own by their names; Tidepool's below `tidepool/`."""
    own = job.told_parameters
    ours: dict[str, Any] = {
        "model": job.model.model.name,
        "model_version": job.model.number,
        "code_sha256": job.model.digest,
        "instance_group": job.instance_group.name,
        **{name: getattr(job, name) for name in _OPTIONS if getattr(job, name) is not None},
    }
    if job.dataset is not None:
        ours |= {
            "dataset": job.dataset_name,
            "dataset_version": job.dataset.number,
            "dataset_sha256": job.dataset.digest,
        }
    named = {**{f"tidepool/{name}": value for name, value in ours.items()}, **own}
    return {metric_key(name): str(value) for name, value in named.items() if str(value)}


def note_own_metrics(job: int, names: set[str]) -> list[str]:
    """Note that the job's script logs these itself; all that are noted of it."""
    with transaction.atomic():
        run = TrackedRun.objects.select_for_update().filter(job=job).first()
        if run is None:  # MLflow has lost it: the mirror makes it again
            return []
        run.own_metrics = sorted({*run.own_metrics, *names})[:_MOST_NAMES]
        run.save(update_fields=["own_metrics"])
    return list(run.own_metrics)


def metric_key(name: str) -> str:
    """A name as MLflow takes it."""
    return "".join(letter if letter.isalnum() or letter in "_-. :/" else "_" for letter in name)[:250]
