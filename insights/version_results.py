"""Results of a model's versions: the best final metric of each version's trainings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from core.numbers import finite
from core.roles import Asking
from jobs.queries.curves import held_out_part, metric_label
from jobs.queries.jobs import visible_jobs
from jobs.states import JobState
from models_registry.models import RegisteredModel

__all__ = ["Ended", "VersionResult", "VersionResults", "best_by_version", "results_by_version"]

#: Number of newest trainings that count, so that the page stays fast.
_MAX_TRAININGS = 1000
#: Metrics in order of preference; held-out data comes before training data.
_PREFERRED = ("accuracy", "loss")


class Ended(NamedTuple):
    """A training that has succeeded."""

    job: int
    name: str
    #: Number of the model's version.
    version: int
    #: Name -> last value.
    metrics: Mapping[str, Any]


@dataclass(frozen=True)
class VersionResult:
    number: int
    #: Number of trainings that have succeeded.
    trainings: int
    #: Training with the best value; None: no training reported the metric.
    best: Ended | None
    value: float | None


@dataclass(frozen=True)
class VersionResults:
    """Best result of each version, all by one metric."""

    metric: str
    #: Whether the metric is an accuracy, in percent.
    is_accuracy: bool
    #: Versions that have trainings, the newest first.
    versions: Sequence[VersionResult]

    @property
    def label(self) -> str:
        return metric_label(self.metric)


def results_by_version(user: Asking, model: RegisteredModel) -> VersionResults | None:
    """Return the results among the newest trainings that the user may see; None without metrics. One query."""
    jobs = visible_jobs(user).filter(model__model=model, state=JobState.SUCCEEDED, validation__isnull=True)
    rows = jobs.order_by("-pk").values_list("pk", "name", "model__number", "run__final_metrics")
    return best_by_version([Ended(*row) for row in rows[:_MAX_TRAININGS]])


def best_by_version(trainings: Sequence[Ended]) -> VersionResults | None:
    """Return the results by accuracy if any training reported one, else by loss; held-out metrics take precedence."""
    names = {name for one in trainings for name in one.metrics if _value(one, name) is not None}
    candidates = [name for name in names if held_out_part(name)[1] in _PREFERRED]
    if not candidates:
        return None
    metric = min(candidates, key=lambda name: _place(name, trainings))
    is_accuracy = held_out_part(metric)[1] == "accuracy"
    numbers = sorted({one.version for one in trainings}, reverse=True)
    of_version = {number: [one for one in trainings if one.version == number] for number in numbers}
    return VersionResults(
        metric, is_accuracy, [_result(number, ones, metric, is_accuracy) for number, ones in of_version.items()]
    )


def _place(name: str, trainings: Sequence[Ended]) -> tuple[int, bool, int, str]:
    """Return the sort key of a metric; among equals, the metric that most trainings reported comes first."""
    data, metric = held_out_part(name)
    return _PREFERRED.index(metric), not data, -sum(_value(one, name) is not None for one in trainings), name


def _result(number: int, trainings: Sequence[Ended], metric: str, is_accuracy: bool) -> VersionResult:
    values = [(value, one) for one in trainings if (value := _value(one, metric)) is not None]
    if not values:
        return VersionResult(number, len(trainings), None, None)
    # Equal values: the earliest training wins.
    value, best = min(values, key=lambda found: (-found[0] if is_accuracy else found[0], found[1].job))
    return VersionResult(number, len(trainings), best, value)


def _value(training: Ended, metric: str) -> float | None:
    return finite(training.metrics.get(metric))
