"""What a training begins with, where that is not nothing: a checkpoint to continue, or an earlier training's weights.

The files are linked into the new job's own folder when it is submitted, so they stay whatever becomes of the other.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from django.contrib.auth.models import User

from jobs.actions.checks import Problems, find_checkpoint
from jobs.jobfolder import INITIAL, job_folder
from jobs.models import Checkpoint, Job
from jobs.queries import visible_jobs
from models_registry.models import RegisteredModelVersion

__all__ = ["Beginning", "Weights", "bring", "final_weights", "find_beginning"]

#: Id of a job, for those that it ended with; or `{"checkpoint": id}`, for those of one checkpoint.
Weights: TypeAlias = int | Mapping[str, Any]

_FINAL_WEIGHTS = Path("model") / "train" / "model_epoch_final.pth"


@dataclass(frozen=True)
class Beginning:
    #: A checkpoint's folder, or a file of weights.
    source: Path
    kind: Job.StartsFrom
    #: Where it comes from: a checkpoint, a job, or a job's weights as one of its checkpoints has them.
    checkpoint: Checkpoint | None = None
    job: Job | None = None


def find_beginning(
    problems: Problems,
    *,
    checkpoint: int | None,
    weights: Weights | None,
    user: User,
    model: RegisteredModelVersion | None,
) -> Beginning | None:
    """What a submission asks to start from: the id of a checkpoint to continue, or whose weights it takes."""
    if checkpoint is None and weights is None:
        return None
    field = "checkpoint" if weights is None else "initial_weights"
    if checkpoint is not None and weights is not None:
        problems.add("initial_weights", "Continue a checkpoint, or start from weights: not both.")
        return None
    if model is not None and model.engine == RegisteredModelVersion.Engine.FIXED:
        problems.add(
            field, f"{model.model.name} is a fixed-size script, which loads nothing by itself: leave this out."
        )
        return None
    if checkpoint is not None:
        found = find_checkpoint(problems, field, checkpoint, user)
        return None if found is None else Beginning(_folder(found), Job.StartsFrom.CHECKPOINT, found)
    if not isinstance(weights, Mapping):
        return _weights_of(problems, weights, user)
    if weights.keys() != {"checkpoint"}:
        problems.add(field, 'Give the number of a job, or {"checkpoint": its number} for those of one checkpoint.')
        return None
    found = find_checkpoint(problems, field, weights["checkpoint"], user)
    return None if found is None else Beginning(_folder(found), Job.StartsFrom.WEIGHTS, found, found.job)


def final_weights(job: Job) -> Path | None:
    """The file of a finished training's weights; None where there is none, or something else in its place."""
    folder = job_folder(job)
    path = folder.incarnation(job.completed_incarnation) / _FINAL_WEIGHTS
    inside = path.is_file() and not path.is_symlink() and path.resolve().is_relative_to(folder.path.resolve())
    return path if job.completed_incarnation and inside else None


def bring(beginning: Beginning, folder: Path) -> None:
    """Link the files into a job's folder that is being made. Raises OSError."""
    target = folder / INITIAL / _name(beginning.source)
    target.parent.mkdir()
    if beginning.source.is_dir():
        target.mkdir()
        for name in ("state.safetensors", "state.json"):
            _link(beginning.source / name, target / name)
    else:
        _link(beginning.source, target)


def _weights_of(problems: Problems, job_id: int | None, user: User) -> Beginning | None:
    """Those that a training ended with, or those of its newest checkpoint."""
    job = visible_jobs(user).filter(pk=job_id).first() if isinstance(job_id, int) and 0 < job_id < 2**63 else None
    if job is None:
        problems.add("initial_weights", f"There is no job {job_id} of yours: look it up in the list of jobs.")
        return None
    final = final_weights(job)
    if final is not None:
        return Beginning(final, Job.StartsFrom.WEIGHTS, job=job)
    for checkpoint in Checkpoint.objects.filter(job=job, problem="").order_by("-step", "-incarnation"):
        if (path := _folder(checkpoint)).is_dir():
            return Beginning(path, Job.StartsFrom.WEIGHTS, job=job)
    problems.add("initial_weights", f"Job {job_id} has no weights: it left neither a result nor a checkpoint.")
    return None


def _folder(checkpoint: Checkpoint) -> Path:
    return job_folder(checkpoint.job).path / checkpoint.path


def _name(source: Path) -> str:
    return source.name if source.is_dir() else "weights.pth"


def _link(source: Path, target: Path) -> None:
    if source.is_symlink():
        raise OSError(f"{source.name} is a link")
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target, follow_symlinks=False)
