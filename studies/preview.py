"""Preview of a study: its size and its estimated cost, without storing anything."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from django.contrib.auth.models import User
from django.utils import timezone

from jobs.control.durations import NewTraining, lengths
from studies.actions import CheckedStudy, StudyRequest, check_study
from studies.space import grid_size
from studies.submission import at_once_of

__all__ = ["StudyPreview", "preview"]


@dataclass(frozen=True)
class StudyPreview:
    trials: Annotated[int | None, "Number of trials; null: no limit."]
    at_once: Annotated[int, "Most trials at the same time."]
    points: Annotated[int | None, "Number of different trials that the space has; null: infinitely many."]
    gpu_hours: Annotated[
        float | None, "Estimate for all trials without pruning, from earlier trainings of the model; null: unknown."
    ]
    notices: Sequence[str]


def preview(given: StudyRequest, owner: User) -> StudyPreview:
    """Return what the study would do. Raises InvalidSubmission like its creation."""
    checked = check_study(given, owner)
    study, points = checked.study, grid_size(checked.search.space)
    counts = [
        count for count in (points if study.sampler == "grid" else None, study.trials_wanted) if count is not None
    ]
    trials = min(counts, default=None)
    return StudyPreview(trials, at_once_of(study), points, _gpu_hours(checked, trials), checked.notices)


def _gpu_hours(checked: CheckedStudy, trials: int | None) -> float | None:
    first = checked.first
    parameters = {**first.model.parameters, **first.given.parameters}
    training = NewTraining(first.model.model_id, first.dataset.dataset_id if first.dataset else None, parameters)
    length = lengths({0: training}, timezone.now()).get(0)
    if length is None or trials is None:
        return None
    return trials * sum(length.work.gpu_seconds) / 2 / 3600
