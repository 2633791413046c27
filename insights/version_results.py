"""Results of a model's versions: the best of what the trainings of each ended with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

from core.roles import Asking
from jobs.queries.curves import held_out_part, metric_label
from jobs.queries.jobs import visible_jobs
from jobs.states import JobState
from models_registry.models import RegisteredModel

__all__ = ["Ended", "VersionResult", "VersionResults", "best_by_version", "results_by_version"]

#: So many of the newest trainings count: a page has little time.
_MAX_TRAININGS = 1000
#: What tells most of a model first; of each, on data that was not trained on before that which was.
_TELLING = ("accuracy", "loss")


class Ended(NamedTuple):
    """A training that has succeeded."""

    job: int
    name: str
    #: Of the model.
    version: int
    #: Name -> last value.
    metrics: Mapping[str, Any]


@dataclass(frozen=True)
class VersionResult:
    number: int
    #: Trainings that have succeeded.
    trainings: int
    #: The best of them; None: none of them reported the metric.
    best: Ended | None
    value: float | None


@dataclass(frozen=True)
class VersionResults:
    """All by the same metric."""

    metric: str
    #: In percent, as all accuracies that are stored.
    is_accuracy: bool
    #: Those that have trainings, the newest first.
    versions: Sequence[VersionResult]

    @property
    def label(self) -> str:
        return metric_label(self.metric)


def results_by_version(user: Asking, model: RegisteredModel) -> VersionResults | None:
    """Of the newest trainings that the user may see; None where they tell nothing. One query."""
    jobs = visible_jobs(user).filter(model__model=model, state=JobState.SUCCEEDED, validation__isnull=True)
    rows = jobs.order_by("-pk").values_list("pk", "name", "model__number", "run__final_metrics")
    return best_by_version([Ended(*row) for row in rows[:_MAX_TRAININGS]])


def best_by_version(trainings: Sequence[Ended]) -> VersionResults | None:
    """Accuracy if any of them reported one, else loss; on data that was not trained on if any did. None: neither."""
    names = {name for one in trainings for name in one.metrics if _value(one, name) is not None}
    telling = [name for name in names if held_out_part(name)[1] in _TELLING]
    if not telling:
        return None
    metric = min(telling, key=lambda name: _place(name, trainings))
    is_accuracy = held_out_part(metric)[1] == "accuracy"
    numbers = sorted({one.version for one in trainings}, reverse=True)
    of_version = {number: [one for one in trainings if one.version == number] for number in numbers}
    return VersionResults(
        metric, is_accuracy, [_result(number, ones, metric, is_accuracy) for number, ones in of_version.items()]
    )


def _place(name: str, trainings: Sequence[Ended]) -> tuple[int, bool, int, str]:
    """Of names that tell as much, the one that most trainings reported."""
    data, metric = held_out_part(name)
    return _TELLING.index(metric), not data, -sum(_value(one, name) is not None for one in trainings), name


def _result(number: int, trainings: Sequence[Ended], metric: str, is_accuracy: bool) -> VersionResult:
    values = [(value, one) for one in trainings if (value := _value(one, metric)) is not None]
    if not values:
        return VersionResult(number, len(trainings), None, None)
    # Of equals the first.
    value, best = min(values, key=lambda found: (-found[0] if is_accuracy else found[0], found[1].job))
    return VersionResult(number, len(trainings), best, value)


def _value(training: Ended, metric: str) -> float | None:
    value = training.metrics.get(metric)
    return float(value) if isinstance(value, int | float) and isfinite(value) else None
