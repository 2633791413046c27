"""Durations of trainings, estimated from their own progress or from earlier trainings of the same model and dataset."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Q

from jobs.models import AllocationPoint, Job
from jobs.states import ACTIVE, JobState
from scheduling.forecast import Work, with_forecasts
from scheduling.snapshot import Snapshot

__all__ = ["Length", "NewTraining", "lengths", "with_lengths"]

#: Number of earlier trainings per model and dataset. Older ones may have run different code.
_MAX_EARLIER = 5
_MAX_ROWS = 500
#: Smallest progress that allows an estimate: the first steps wait for data, compilers and other ranks.
_LEAST_PROGRESS = 0.02
#: Columns of a job that make a `NewTraining`. Values instead of rows, because very many jobs may wait.
_TRAINING = ("model__model", "dataset__dataset", "model__parameters", "parameters")


@dataclass(frozen=True)
class NewTraining:
    """The properties of a training that its duration depends on."""

    model: int
    #: Number of the dataset; None: no dataset.
    dataset: int | None
    #: Parameters of the training, including its model's.
    parameters: Mapping[str, Any]
    progress: float = 0.0


@dataclass(frozen=True)
class Length:
    work: Work
    #: Number of earlier trainings that the estimate comes from; 0: it comes from the training's own progress.
    earlier: int


class _Spent(NamedTuple):
    gpu_seconds: float
    seconds: float

    def times(self, factor: float) -> "_Spent":
        return _Spent(self.gpu_seconds * factor, self.seconds * factor)


def lengths(trainings: Mapping[int, NewTraining], now: datetime) -> dict[int, Length]:
    """Return the remaining work of active jobs and of unsubmitted `trainings`, by id. Unknown ones are missing."""
    active = Job.objects.filter(state__in=sorted(ACTIVE), finished_at__isnull=True).order_by()
    rows = list(active.values_list("pk", "state", "run__progress", "validation", *_TRAINING))
    telling = {pk: told for pk, state, told, *_ in rows if state == JobState.RUNNING and (told or 0) >= _LEAST_PROGRESS}
    spent = _spent([*telling], now)
    found = {pk: _left([spent[pk].times((1 - told) / told)], 0) for pk, told in telling.items() if pk in spent}
    # Durations of trainings do not apply to a validation run.
    asked = {
        pk: _as_training(progress, *row)
        for pk, _, progress, validation, *row in rows
        if pk not in found and validation is None
    }
    return found | _by_earlier(asked | dict(trainings), now)


def with_lengths(seen: Snapshot, known: Mapping[int, Length], at: datetime) -> Snapshot:
    """Return the snapshot with the estimated work of its jobs at that moment.

    A running job counts only if its own progress gives the estimate: earlier trainings do not tell how much is left.
    """
    waiting = {job.id for job in seen.jobs if job.state == "PENDING"}
    works = {number: length.work for number, length in known.items() if number in waiting or not length.earlier}
    return with_forecasts(seen, works, at.timestamp())


def _as_training(
    progress: float | None, model: int, dataset: int | None, usual: Mapping[str, Any], own: Mapping[str, Any]
) -> NewTraining:
    return NewTraining(model, dataset, {**usual, **own}, progress or 0.0)


def _by_earlier(asked: Mapping[int, NewTraining], now: datetime) -> dict[int, Length]:
    earlier = _earlier({(training.model, training.dataset) for training in asked.values()})
    spent = _spent([pk for same in earlier.values() for pk in same], now)
    found = {}
    for key, training in asked.items():
        told = [
            spent[pk].times(_as_long(training, done) * (1 - training.progress))
            for pk, done in earlier[training.model, training.dataset].items()
            if pk in spent
        ]
        if told:
            found[key] = _left(told, len(told))
    return found


def _earlier(pairs: Iterable[tuple[int, int | None]]) -> dict[tuple[int, int | None], dict[int, NewTraining]]:
    """Return the newest completed trainings of each model and dataset."""
    wanted = set(pairs)
    same_data = Q(dataset__dataset__in={dataset for _, dataset in wanted if dataset is not None})
    if any(dataset is None for _, dataset in wanted):
        same_data |= Q(dataset=None)
    jobs = Job.objects.filter(
        same_data,
        state=JobState.SUCCEEDED,
        validation=None,
        model__model__in={model for model, _ in wanted},
    )
    found: dict[tuple[int, int | None], dict[int, NewTraining]] = defaultdict(dict)
    for pk, *row in jobs.order_by("-id").values_list("pk", *_TRAINING)[:_MAX_ROWS]:
        done = _as_training(None, *row)
        if len(same := found[done.model, done.dataset]) < _MAX_EARLIER:
            same[pk] = done
    return found


def _as_long(training: NewTraining, earlier: NewTraining) -> float:
    """Return the expected ratio of durations: proportional to epochs, unaffected by other parameters."""
    before, epochs = earlier.parameters.get("epochs"), training.parameters.get("epochs")
    if isinstance(epochs, int) and isinstance(before, int) and epochs > 0 and before > 0:
        return epochs / before
    return 1.0


def _spent(jobs: Sequence[int], now: datetime) -> dict[int, _Spent]:
    """Return the seconds that each job trained, and its GPU-seconds."""
    points = AllocationPoint.objects.filter(job__in=jobs).order_by("job_id", "at", "id")
    series: dict[int, list[tuple[datetime, int]]] = defaultdict(list)
    for job, at, slots in points.values_list("job", "at", "slots"):
        series[job].append((at, slots))
    found = {}
    for job, changes in series.items():
        ends = [*(at for at, _ in changes[1:]), now]
        held = [((end - at).total_seconds(), slots) for (at, slots), end in zip(changes, ends, strict=True) if slots]
        seconds, gpu_seconds = sum(span for span, _ in held), sum(span * slots for span, slots in held)
        if seconds > 0:
            found[job] = _Spent(gpu_seconds, seconds)
    return found


def _left(told: Sequence[_Spent], earlier: int) -> Length:
    least, most = 1e-3, 1e12  # a training at 100 % that is still ending; rates stay finite
    gpu_seconds, seconds = (
        (max(least, min(values)), min(most, max(least, *values))) for values in zip(*told, strict=True)
    )
    return Length(Work(gpu_seconds, seconds), earlier)
