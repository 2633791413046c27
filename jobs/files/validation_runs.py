"""Validations: the checkpoints that may be measured, and the results that a run wrote, as they are shown."""

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from tidepool.safe_open import open_regular

from jobs.files.job_folder import job_folder
from jobs.models import Job, Validation
from models_registry.code_inspection import inspect_code
from models_registry.models import RegisteredModelVersion

__all__ = ["ClassScore", "class_scores", "keep_result", "parsed_result", "validation_of", "why_not_validated"]

logger = logging.getLogger(__name__)

#: `tidepool.torch.rank.validation` writes it; a matrix of 100 classes needs much less.
_RESULT_FILE = "validation.json"
_MAX_RESULT_BYTES = 1024**2

_Count = Annotated[int, Meta(ge=0, le=2**53)]


class _Result(msgspec.Struct):
    split: Literal["validation", "testing", "held-out"]
    samples: _Count
    loss: Annotated[float, Meta(ge=-1e300, le=1e300)] | None = None
    #: In percent.
    accuracy: Annotated[float, Meta(ge=0, le=100)] | None = None
    confusion: Annotated[list[list[_Count]], Meta(min_length=1, max_length=100)] | None = None


@dataclass(frozen=True)
class ClassScore:
    label: int
    samples: int
    recall: Annotated[float | None, "Percent of its samples that were found."]
    precision: Annotated[float | None, "Percent of such answers that were right."]


def validation_of(job: Job) -> Validation | None:
    """The validation that the job measures; None: it trains."""
    validation: Validation | None = getattr(job, "validation", None)
    return validation


def why_not_validated(job: Job) -> str:
    """Why this job's weights cannot be measured, and what to add; "": they can. It reads the submitted code."""
    if validation_of(job) is not None:
        return "This run has validated a training and left no weights: validate that training again."
    if job.finished_at is None:
        return "It still trains: validate it once it is over, or stop it first."
    if job.model.engine == RegisteredModelVersion.Engine.FIXED:
        return "It was trained by a fixed-size script, which Tidepool cannot ask: only a Session or a FabricModel can."
    facts = inspect_code(job_folder(job).code, job.model.entry_point)
    if facts.can_validate:
        return ""
    if facts.elastic:
        return (
            "Its script does not say what to measure it on: add session.validate_on(dataset, loss) before "
            "session.epochs, register a new version of the model, and train it again."
        )
    return "Only scripts with a tidepool Session or a FabricModel can be validated: runtime/README.md shows both."


def keep_result(job: Job) -> None:
    """Store what a run that validated has written down; nothing of it is trusted."""
    validation = validation_of(job)
    if validation is None:
        return
    try:
        result = parsed_result(json.loads(_written(job_folder(job).attempt(job.run.attempt) / _RESULT_FILE)))
    except (ValueError, RecursionError) as error:
        logger.warning("job=%s left no result of its validation that can be used: %s", job.pk, error)
        return
    Validation.objects.filter(pk=validation.pk).update(result=result)


def parsed_result(written: Any) -> dict[str, Any]:
    """{"split", "samples", "loss", "accuracy", "confusion"}; raises ValueError for anything else."""
    result = msgspec.convert(written, _Result)
    matrix = result.confusion or []
    if any(len(row) != len(matrix) for row in matrix):
        raise ValueError("the confusion matrix is not square")
    return msgspec.structs.asdict(result)


def class_scores(confusion: list[list[int]]) -> list[ClassScore]:
    """Return scores by class: how many samples it has, how many were found, how many of the answers were right."""
    answered = [sum(column) for column in zip(*confusion, strict=True)]
    return [
        ClassScore(label, sum(row), _share(row[label], sum(row)), _share(row[label], answered[label]))
        for label, row in enumerate(confusion)
    ]


def _share(part: int, whole: int) -> float | None:
    return 100.0 * part / whole if whole else None


def _written(path: Path) -> bytes:
    descriptor = open_regular(path)
    if descriptor is None:
        raise ValueError("there is no such file")
    with os.fdopen(descriptor, "rb") as stream:
        content = stream.read(_MAX_RESULT_BYTES + 1)
    if len(content) > _MAX_RESULT_BYTES:
        raise ValueError("it is too long")
    return content
