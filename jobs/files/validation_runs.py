"""Validations: jobs whose weights can be evaluated, and the results that a validation run wrote."""

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from tidepool.safe_open import open_regular

from core.help_links import help_address
from jobs.files.job_folder import job_folder
from jobs.models import Job, Validation
from models_registry.code_inspection import inspect_code
from models_registry.models import RegisteredModelVersion

__all__ = ["ClassScore", "class_scores", "keep_result", "parsed_result", "validation_of", "why_not_validated"]

logger = logging.getLogger(__name__)

#: File that `tidepool.torch.rank.validation` writes, and its largest size: 100 classes need much less.
_RESULT_FILE = "validation.json"
_MAX_RESULT_BYTES = 1024**2

_Count = Annotated[int, Meta(ge=0, le=2**53)]


class _Result(msgspec.Struct):
    split: Literal["validation", "testing", "held-out"]
    samples: _Count
    loss: Annotated[float, Meta(ge=-1e300, le=1e300)] | None = None
    #: Top-1 accuracy in percent.
    accuracy: Annotated[float, Meta(ge=0, le=100)] | None = None
    confusion: Annotated[list[list[_Count]], Meta(min_length=1, max_length=100)] | None = None


@dataclass(frozen=True)
class ClassScore:
    label: int
    samples: int
    recall: Annotated[float | None, "Percent of the class's samples that were classified correctly."]
    precision: Annotated[float | None, "Percent of the predictions of this class that were right."]


def validation_of(job: Job) -> Validation | None:
    """Return the job's validation if the job is a validation run; None for a training."""
    validation: Validation | None = getattr(job, "validation", None)
    return validation


def why_not_validated(job: Job) -> str:
    """Return why this job's weights cannot be evaluated; "" if they can. Reads the submitted code."""
    if validation_of(job) is not None:
        return "This run has validated a training and left no weights: validate that training again."
    if job.finished_at is None:
        return "The training is still running: validate it after its end, or stop it first."
    if job.engine == RegisteredModelVersion.Engine.FIXED:
        return "Tidepool cannot evaluate a fixed-size script: use a Session or a FabricModel."
    facts = inspect_code(job_folder(job).code, job.model.entry_point)
    if facts.can_validate:
        return ""
    if facts.elastic:
        return (
            "The script does not name held-out data: add session.validate_on(dataset, loss) before "
            "session.epochs, register a new version of the model, and train it again."
        )
    shown = help_address("runtime", "validate")
    return f"Only scripts with a tidepool Session or a FabricModel can be validated: see {shown}"


def keep_result(job: Job) -> None:
    """Store the result that a validation run wrote, after checking it."""
    validation = validation_of(job)
    if validation is None:
        return
    try:
        result = parsed_result(json.loads(_written(job_folder(job).attempt(job.run.attempt) / _RESULT_FILE)))
    except (ValueError, RecursionError) as error:
        logger.warning("job=%s dropped an invalid validation result: %s", job.pk, error)
        return
    Validation.objects.filter(pk=validation.pk).update(result=result)


def parsed_result(written: Any) -> dict[str, Any]:
    """Return {"split", "samples", "loss", "accuracy", "confusion"}. Raises ValueError for anything else."""
    result = msgspec.convert(written, _Result)
    matrix = result.confusion or []
    if any(len(row) != len(matrix) for row in matrix):
        raise ValueError("the confusion matrix is not square")
    return msgspec.structs.asdict(result)


def class_scores(confusion: list[list[int]]) -> list[ClassScore]:
    """Return the number of samples, the recall and the precision of each class."""
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
