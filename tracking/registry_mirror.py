"""Brings versions of models to MLflow's registry, and learns from it which are there. For the mirror."""

import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from django.db import transaction

from jobs.actions.initial_state import trained_weights
from jobs.files.job_folder import job_folder, link_file
from jobs.models import Job
from tracking.launch import artifact_root
from tracking.models import ModelVersion, TrackedRun
from tracking.upstream import MlflowServer, Refused

__all__ = ["follow_registry", "make_versions"]

logger = logging.getLogger(__name__)

_EXISTS = "RESOURCE_ALREADY_EXISTS"
#: Below a run's files: what its training ended with, once it is registered.
_FOLDER = "trained"
_AT_ONCE = 20
_PER_PAGE = 1000


def make_versions(server: MlflowServer) -> None:
    """Make those that people have asked for, of runs that are there. Raises Away."""
    asked = ModelVersion.objects.filter(number=None, problem="", job__tracked_run__isnull=False)
    related = "job__owner", "job__run", "job__model__model", "job__tracked_run"
    for version in asked.select_related(*related).order_by("pk")[:_AT_ONCE]:
        try:
            _make(server, version)
        except (Refused, OSError) as error:
            logger.warning("job=%s is not registered as %s: %s", version.job_id, version.name, error)
            version.problem = str(error)[:500]
            version.save(update_fields=["problem"])


def _make(server: MlflowServer, version: ModelVersion) -> None:
    """A version that was made and not noted is found again."""
    job, run = version.job, version.job.tracked_run
    user = job.owner.get_username()
    known = {(each["name"], each["run_id"]): each for each in _versions(server, filter=f"run_id = '{run.run_id}'")}
    made = known.get((version.name, run.run_id))
    if made is None:
        source = _bring_weights(job, run)
        try:
            server.post(user, "registered-models/create", {"name": version.name})
        except Refused as error:
            if error.code != _EXISTS:
                raise
        tags = [{"key": "tidepool.job", "value": str(job.pk)}]
        values = {"name": version.name, "source": source, "run_id": run.run_id, "tags": tags}
        made = server.post(user, "model-versions/create", values)["model_version"]
    with transaction.atomic():
        # The mirror alone writes numbers.
        ModelVersion.objects.filter(name=version.name, number=int(made["version"])).delete()
        columns = {"number": int(made["version"]), "source": str(made.get("source", ""))}
        ModelVersion.objects.filter(pk=version.pk, number=None).update(**columns)


def _bring_weights(job: Job, run: TrackedRun) -> str:
    """Link them among the run's files; where they lie there, as MLflow writes it. Raises OSError."""
    top, name = job_folder(job).path, trained_weights(job)
    if name is None:
        raise OSError("The training's weights no longer exist.")
    place = f"{run.experiment_id}/{run.run_id}/artifacts/{_FOLDER}"
    folder = artifact_root() / place
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = f"{name}/state.safetensors" if (top / name).is_dir() else name
    target = folder / ("weights.safetensors" if file.endswith(".safetensors") else "weights.pth")
    with suppress(FileExistsError):
        link_file(top, file, target)
    return f"mlflow-artifacts:/{place}"


def follow_registry(server: MlflowServer) -> None:
    """Note each version of a job's run that MLflow has, with its aliases; forget those that it has no more.

    Raises Away, Refused.
    """
    found = {(str(each["name"]), int(each["version"])): each for each in _versions(server)}
    aliases = _aliases(server)
    runs = {str(each["run_id"]) for each in found.values() if each.get("run_id")}
    jobs = dict(TrackedRun.objects.filter(run_id__in=runs).values_list("run_id", "job_id"))
    known = {(row.name, row.number): row for row in ModelVersion.objects.exclude(number=None)}
    for key, each in found.items():
        job = jobs.get(str(each.get("run_id", "")))
        values = {"source": str(each.get("source", ""))[:1024], "aliases": aliases.get(key, [])}
        row = known.pop(key, None)
        if row is not None and row.job_id == job:
            if (row.source, row.aliases) != (values["source"], values["aliases"]):
                ModelVersion.objects.filter(pk=row.pk).update(**values)
        elif job is not None:
            with transaction.atomic():
                ModelVersion.objects.filter(name=key[0], number=key[1]).delete()
                ModelVersion.objects.create(job_id=job, name=key[0], number=key[1], **values)
    ModelVersion.objects.filter(pk__in=[row.pk for row in known.values()]).delete()


def _aliases(server: MlflowServer) -> dict[tuple[str, int], list[str]]:
    """Return the aliases by model and version, which the list of versions does not have."""
    aliases: dict[tuple[str, int], list[str]] = defaultdict(list)
    for model in _listed(server, "registered-models/search", "registered_models"):
        for each in model.get("aliases", []):
            aliases[str(model["name"]), int(each["version"])].append(str(each["alias"]))
    return {key: sorted(names) for key, names in aliases.items()}


def _versions(server: MlflowServer, **question: str) -> Iterator[dict[str, Any]]:
    return _listed(server, "model-versions/search", "model_versions", **question)


def _listed(server: MlflowServer, call: str, rows: str, **question: str) -> Iterator[dict[str, Any]]:
    """Page after page."""
    token = ""
    while True:
        more = {"page_token": token} if token else {}
        answer = server.get_all(call, max_results=str(_PER_PAGE), **question, **more)
        yield from answer.get(rows, [])
        token = str(answer.get("next_page_token", ""))
        if not token:
            return
