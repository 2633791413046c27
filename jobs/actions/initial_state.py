"""Initial state of a training: a checkpoint to resume from, or initial weights.

Weights come from an earlier training, from one of its checkpoints, or from an uploaded file.

The files are linked into the new job's folder at submission, so that they stay even if their source is removed.
"""

import os
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from django.contrib.auth.models import User
from safetensors import SafetensorError, safe_open
from tidepool.safe_open import open_below

from core.errors import UserError, if_full
from core.models import Upload
from core.uploads import WEIGHTS_SUFFIXES, file_of, find_upload, finished_file
from jobs.actions.submission_checks import InvalidSubmission, Problems, find_checkpoint
from jobs.files.job_folder import INITIAL, job_folder, link_checkpoint, link_file
from jobs.models import Checkpoint, Job
from jobs.queries.jobs import visible_jobs
from models_registry.models import RegisteredModelVersion

__all__ = [
    "WEIGHTS_WANTED",
    "Beginning",
    "Weights",
    "beginning_again",
    "bring",
    "final_weights",
    "find_beginning",
    "trained_weights",
]

#: Id of a job, for its final weights; `{"checkpoint": id}` for those of a checkpoint; or `{"upload": id}`.
Weights: TypeAlias = int | Mapping[str, Any]

WEIGHTS_WANTED = (
    'Give the number of a training, or {"checkpoint": its number} for those of one checkpoint, or {"upload": its '
    "number} for an uploaded file."
)

#: Suffixes of files that torch.save has not written.
_OWN_FORMATS = (".safetensors", ".zip")
#: Name of one of several files that hold a model's weights together.
_PART = re.compile(r"-\d+-of-\d+\.[a-z]+$")
_FINAL_WEIGHTS = Path("model") / "train" / "model_epoch_final.pth"


@dataclass(frozen=True)
class Beginning:
    #: A folder, and the path below it of a checkpoint's folder or a file of weights. Files that a script wrote are
    #: opened below their job's folder, so that no link on the way can lead out of it.
    top: Path
    name: str
    kind: Job.StartsFrom
    #: Source: a checkpoint, a job, or both for the weights of a job's checkpoint.
    checkpoint: Checkpoint | None = None
    job: Job | None = None
    #: Name of the uploaded file, or "".
    file_name: str = ""


def find_beginning(
    problems: Problems,
    *,
    checkpoint: int | None,
    weights: Weights | None,
    user: User,
    model: RegisteredModelVersion | None,
) -> Beginning | None:
    """Return the initial state that a submission asks for: a checkpoint to resume from, by its id, or weights."""
    if checkpoint is None and weights is None:
        return None
    field = "checkpoint" if weights is None else "initial_weights"
    if checkpoint is not None and weights is not None:
        problems.add("initial_weights", "Resume from a checkpoint or start from weights, not both.")
        return None
    if model is not None and model.engine == RegisteredModelVersion.Engine.FIXED:
        problems.add(
            field, f"{model.model.name} is a fixed-size script, which cannot load an initial state: remove it."
        )
        return None
    if checkpoint is not None:
        found = find_checkpoint(problems, field, checkpoint, user)
        return None if found is None else _of_checkpoint(found, Job.StartsFrom.CHECKPOINT)
    if not isinstance(weights, Mapping):
        return _weights_of(problems, weights, user)
    if weights.keys() == {"upload"}:
        return _uploaded(problems, weights["upload"], user)
    if weights.keys() != {"checkpoint"}:
        problems.add(field, WEIGHTS_WANTED)
        return None
    found = find_checkpoint(problems, field, weights["checkpoint"], user)
    return None if found is None else _of_checkpoint(found, Job.StartsFrom.WEIGHTS, job=found.job)


def beginning_again(job: Job) -> Beginning | None:
    """Return the initial state of this job, for another job; None if it had none."""
    if job.starts_from == Job.StartsFrom.NOTHING:
        return None
    kind = Job.StartsFrom(job.starts_from)
    folder = job_folder(job)
    name = folder.initial().relative_to(folder.path).as_posix()
    return Beginning(folder.path, name, kind, job.initial_checkpoint, job.initial_job, job.initial_file)


def final_weights(job: Job) -> str | None:
    """Return the path of a training's final weights below the job's folder; None if there are none."""
    folder = job_folder(job)
    name = f"{folder.attempt(job.run.completed_attempt).name}/{_FINAL_WEIGHTS}"
    descriptor = open_below(folder.path, name.split("/")) if job.run.completed_attempt else None
    if descriptor is None:
        return None
    os.close(descriptor)
    return name


def trained_weights(job: Job) -> str | None:
    """Return the path of a training's last weights below the job's folder: a file, or its newest checkpoint."""
    final = final_weights(job)
    if final is not None:
        return final
    folder = job_folder(job).path
    return next((point.path for point in job.checkpoints.usable() if (folder / point.path).is_dir()), None)


def bring(beginning: Beginning, folder: Path) -> None:
    """Link the files into the folder of a new job. Raises InvalidSubmission if that fails."""
    top, name = beginning.top, beginning.name
    try:
        (folder / INITIAL).mkdir()
        if (top / name).is_dir():
            link_checkpoint(top, name, folder / INITIAL / Path(name).name)
        else:
            suffix = Path(beginning.file_name).suffix.lower()
            link_file(top, name, folder / INITIAL / f"weights{suffix if suffix in _OWN_FORMATS else '.pth'}")
    except OSError as error:
        field = "checkpoint" if beginning.kind == Job.StartsFrom.CHECKPOINT else "initial_weights"
        sentence = f"The files cannot be linked ({error.strerror or error}): choose another one."
        raise if_full(error) or InvalidSubmission({field: [sentence]}) from error


def _weights_of(problems: Problems, job_id: int | None, user: User) -> Beginning | None:
    """Return the final weights of a training, or those of its newest checkpoint."""
    job = visible_jobs(user).filter(pk=job_id).first() if isinstance(job_id, int) and 0 < job_id < 2**63 else None
    if job is None:
        problems.add(
            "initial_weights", f"Training {job_id} not found among yours: look it up in the list of trainings."
        )
        return None
    name = trained_weights(job)
    if name is None:
        problems.add("initial_weights", f"Training {job_id} has no weights: it has neither a result nor a checkpoint.")
        return None
    return Beginning(job_folder(job).path, name, Job.StartsFrom.WEIGHTS, job=job)


def _uploaded(problems: Problems, upload_id: Any, user: User) -> Beginning | None:
    """Return an uploaded file of weights. Other trainings may use the upload, until unused uploads are removed."""
    field = "initial_weights"
    if isinstance(upload_id, bool) or not isinstance(upload_id, int):
        problems.add(field, WEIGHTS_WANTED)
        return None
    try:
        upload = find_upload(user, upload_id)
        path = finished_file(upload)
    except UserError as error:
        problems.add(field, error.message)
        return None
    if problem := _problem_of(upload):
        problems.add(field, problem)
        return None
    return Beginning(path.parent, path.name, Job.StartsFrom.WEIGHTS, file_name=upload.name)


def _problem_of(upload: Upload) -> str:
    """Return why the file holds no weights, as far as can be seen without loading it; "" if nothing is wrong."""
    path, name = file_of(upload), upload.name.lower()
    if _PART.search(name):
        return f"{upload.name} is one of several files: put all of them into a zip file and upload that."
    if name.endswith(".safetensors"):
        try:
            with safe_open(path, framework="numpy"):
                return ""
        except (SafetensorError, OSError):
            return f"{upload.name} is not a valid safetensors file: save it again and upload the new file."
    if not name.endswith(WEIGHTS_SUFFIXES):
        return f"{upload.name} is not a file of weights: upload one of {', '.join(WEIGHTS_SUFFIXES)}."
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        names = []
    if any(Path(entry).name == "data.pkl" for entry in names):
        return ""
    if not name.endswith(".zip"):
        return (
            f"{upload.name} was not written by torch.save: save the model's state_dict() with it and upload the new "
            "file."
        )
    if any(entry.endswith((".safetensors", ".bin")) for entry in names):
        return ""
    return f"{upload.name} has no file of weights (.safetensors or .bin): put those that save_pretrained wrote into it."


def _of_checkpoint(checkpoint: Checkpoint, kind: Job.StartsFrom, *, job: Job | None = None) -> Beginning:
    return Beginning(job_folder(checkpoint.job).path, checkpoint.path, kind, checkpoint, job)
