"""Actions on MLflow's registry from our pages: register a training, give an alias, take weights over."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError
from tidepool.safe_open import open_below

from core import uploads
from core.errors import Conflict, NotFound, field_error
from core.folders import regular_files
from core.models import Upload
from jobs.actions.initial_state import trained_weights
from jobs.models import Job
from jobs.queries.jobs import visible_jobs
from tracking.artifacts import place_of
from tracking.launch import artifact_root
from tracking.models import ModelVersion, TrackedRun
from tracking.upstream import Away, MlflowServer, Refused

__all__ = ["default_name", "find_version", "register", "set_alias", "take_over", "why_not_registered"]

#: A page waits for MLflow no longer.
_SECONDS = 10.0
_NOT_IN_NAMES = str.maketrans({"/": "_", ":": "_"})
_MAX_FILES = 1000
_NO_MLFLOW = "This site has no MLflow."
_NO_WEIGHTS = (
    "Its files have no state dictionary (.safetensors, .pth, .pt) that can be read without executing code. "
    "Log one: torch.save(model.state_dict(), ...) and mlflow.log_artifact."
)


def default_name(job: Job) -> str:
    """Return the name of the MLflow model that the training becomes a version of: all users share these names."""
    return f"{job.owner.get_username()}.{job.model.model.name}".translate(_NOT_IN_NAMES)[:256]


def why_not_registered(job: Job) -> str:
    """Why the training cannot become a version in MLflow; "": it can."""
    if not settings.TIDEPOOL_MLFLOW_SOCKET:
        return _NO_MLFLOW
    if job.finished_at is None:
        return "The training has not ended yet."
    return "" if trained_weights(job) else "The training has no weights: neither a result nor a checkpoint."


def register(job: Job, user: User) -> ModelVersion:
    """Ask for a version in MLflow whose source is the training's run; the mirror makes it. One that was refused is
    asked for again."""
    if reason := why_not_registered(job):
        raise Conflict(reason)
    name = default_name(job)
    there = ModelVersion.objects.filter(job=job, name=name).first()
    if there is not None and there.problem:
        ModelVersion.objects.filter(pk=there.pk).update(problem="")
    elif there is not None:
        raise Conflict(f"The training is already registered as {there}.")
    try:
        return there or ModelVersion.objects.create(job=job, name=name)
    except IntegrityError:
        raise Conflict("Another request has just registered it: reload the page.") from None


def find_version(user: User, version: int) -> ModelVersion:
    """One of a training that the user sees."""
    rows = ModelVersion.objects.filter(pk=version, job__in=visible_jobs(user)).select_related("job__owner")
    found = rows.exclude(number=None).first()
    if found is None:
        raise NotFound("MLflow does not have this version.")
    return found


def set_alias(version: ModelVersion, alias: str, *, remove: bool = False) -> None:
    """Give the version the alias, which no other version of its model has then, or take it away."""
    _refuse_without_mlflow()
    alias = alias.strip()
    if not alias:
        raise field_error("alias", "Write an alias, such as champion or staging.")
    user, about = version.job.owner.get_username(), {"name": version.name, "alias": alias}
    server = MlflowServer(seconds=_SECONDS)
    try:
        if remove:
            server.delete(user, "registered-models/alias", about)
        else:
            server.post(user, "registered-models/alias", {**about, "version": str(version.number)})
    except Away:
        raise Conflict("MLflow does not answer at the moment: nothing has changed. Try again in a minute.") from None
    except Refused as error:
        raise field_error("alias", f"MLflow refuses it: {error.message}") from None
    finally:
        server.close()
    for row in ModelVersion.objects.filter(name=version.name).exclude(number=None):
        aliases = set(row.aliases) - {alias} | ({alias} if row.pk == version.pk and not remove else set())
        ModelVersion.objects.filter(pk=row.pk).update(aliases=sorted(aliases))


def take_over(version: ModelVersion, user: User) -> Upload:
    """Make the version's weights an upload of the user's, which a training can begin with.

    Nothing is loaded here: the rank reads the file, and runs nothing that is in it.
    """
    _refuse_without_mlflow()
    parts = _parts_of(version)
    name = next(iter(_weights_in(artifact_root().joinpath(*parts))), None)
    descriptor = open_below(artifact_root(), [*parts, *name.split("/")]) if name is not None else None
    if name is None or descriptor is None:
        raise Conflict(_NO_WEIGHTS)
    with os.fdopen(descriptor, "rb") as stream:
        size = os.fstat(descriptor).st_size
        upload = uploads.begin(user, f"{version.name}-{version.number}{Path(name).suffix}", size)
        try:
            with uploads.file_of(upload).open("wb") as copy:
                shutil.copyfileobj(stream, copy, 1024**2)
        except OSError as error:
            uploads.discard(upload)
            raise Conflict(f"Its file cannot be copied ({error.strerror or error}).") from None
    return upload


def _refuse_without_mlflow() -> None:
    if not settings.TIDEPOOL_MLFLOW_SOCKET:
        raise Conflict(_NO_MLFLOW)


def _parts_of(version: ModelVersion) -> tuple[str, ...]:
    """Return the folder of its files below the root."""
    kind, _, rest = version.source.partition(":/")
    run = TrackedRun.objects.filter(job=version.job_id).first()
    if run is None:
        raise Conflict("MLflow has lost the run of its training.")
    logged = f"{run.experiment_id}/models/{rest.strip('/')}/artifacts"
    run_path = f"{run.experiment_id}/{run.run_id}/artifacts/"
    path = {"mlflow-artifacts": rest, "models": logged, "runs": run_path + rest.strip("/").partition("/")[2]}.get(kind)
    place = place_of(artifact_root(), path) if path else None
    if place is None or place.experiment != run.experiment_id:
        raise Conflict(_NO_WEIGHTS)
    return place.parts


def _weights_in(folder: Path) -> Iterator[str]:
    """Names below the folder, the ones without code first."""
    names = [name for count, (name, _) in enumerate(regular_files(folder)) if count < _MAX_FILES]
    for suffix in (".safetensors", ".pth", ".pt"):
        yield from sorted(name for name in names if name.lower().endswith(suffix))
