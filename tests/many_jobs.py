"""A cluster's history: any number of jobs as a team leaves them behind over two years, made in seconds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, islice
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from datasets.models import Dataset, DatasetVersion
from jobs.models import InstanceGroup, Job
from jobs.states import TERMINAL, JobState, Reason
from models_registry.models import RegisteredModel, RegisteredModelVersion
from tests.factories import InstanceGroupFactory, ResourceGroupFactory

__all__ = ["make_many_jobs"]

OWNERS, MODELS, DATASETS, GROUPS = 40, 25, 12, 4
YEARS = timedelta(days=730)
#: Of the newest jobs, those that may still be about.
NEWEST = 400
_LATELY = {
    JobState.PENDING: 45,
    JobState.RUNNING: 12,
    JobState.SUSPENDED: 3,
    JobState.SUCCEEDED: 30,
    JobState.FAILED: 10,
}
_LONG_AGO = {JobState.SUCCEEDED: 72, JobState.FAILED: 17, JobState.CANCELLED: 11}
_WORDS = ("baseline", "wide", "deep", "sweep", "ablation", "finetune", "resume", "debug", "large-batch", "cosine")
_WEIGHTS = list(accumulate(1 / (place + 1) for place in range(100)))
_TRACEBACK = "Traceback (most recent call last):\n" + '  File "main.py", line 41, in main\n    step()\n' * 8


@dataclass(frozen=True)
class _Cast:
    owners: list[User]
    models: list[RegisteredModelVersion]
    datasets: list[DatasetVersion]
    groups: list[InstanceGroup]


def make_many_jobs(count: int, *, seed: int = 0, now: datetime | None = None) -> None:
    """`user-000` owns the most of them, each next user fewer; nearly all of them are over."""
    dice, cast, now = random.Random(seed), _cast(), now or timezone.now()
    jobs = (_job(dice, cast, number, count, now) for number in range(count))
    for batch in _batches(jobs, 2000):
        Job.objects.bulk_create(batch)


def _cast() -> _Cast:
    owners = User.objects.bulk_create(User(username=f"user-{number:03}", password="!") for number in range(OWNERS))
    models = RegisteredModel.objects.bulk_create(
        RegisteredModel(name=f"network-{number:02}", owner=owners[number % OWNERS]) for number in range(MODELS)
    )
    datasets = Dataset.objects.bulk_create(
        Dataset(name=f"pictures-{number:02}", owner=owners[number % OWNERS]) for number in range(DATASETS)
    )
    return _Cast(
        owners,
        RegisteredModelVersion.objects.bulk_create(
            RegisteredModelVersion(model=model, number=number, path="/", entry_point="main.py", digest="0" * 64)
            for model in models
            for number in (1, 2, 3)
        ),
        DatasetVersion.objects.bulk_create(DatasetVersion(dataset=dataset, number=1, path="/") for dataset in datasets),
        [
            InstanceGroupFactory(name=f"group-{number}", resource_group=ResourceGroupFactory(name=f"hosts-{number}"))
            for number in range(GROUPS)
        ],
    )


def _job(dice: random.Random, cast: _Cast, number: int, count: int, now: datetime) -> Job:
    submitted = now - YEARS * (1 - (number + 1) / count)
    chances = _LATELY if count - number <= NEWEST else _LONG_AGO
    state = dice.choices(list(chances), weights=list(chances.values()))[0]
    return Job(
        name=f"{dice.choice(_WORDS)}-{dice.choice(_WORDS)}-{number % 977}",
        owner=_pick(dice, cast.owners),
        model=_pick(dice, cast.models),
        dataset=_pick(dice, cast.datasets),
        instance_group=_pick(dice, cast.groups),
        state=state,
        max_slots=dice.choice((1, 2, 4, 8, 8, 16)),
        priority=dice.choice((1000, 5000, 5000, 5000, 8000, 10000)),
        parameters={"epochs": dice.randint(1, 90), "lr": dice.choice((0.1, 0.01, 0.003))},
        reason_text="It ended as it should after 9 epochs in 600 steps; what it learned is in its results.",
        submitted_at=submitted,
        **_course(dice, state, submitted),
    )


def _course(dice: random.Random, state: JobState, submitted: datetime) -> dict[str, Any]:
    if state in (JobState.PENDING, JobState.SUSPENDED):
        return {"reason_code": Reason.WAITING_FOR_SLOTS}
    started = submitted + timedelta(minutes=dice.expovariate(0.1))
    if state not in TERMINAL:
        return {"started_at": started, "slots": 1, "target_slots": 1, "step": 820, "progress": dice.random()}
    return {
        "started_at": started,
        "finished_at": started + timedelta(minutes=dice.expovariate(0.01)),
        "incarnation": 1,
        "step": dice.randint(1, 90_000),
        "progress": 1.0 if state == JobState.SUCCEEDED else dice.random(),
        "final_metrics": {"loss": dice.random(), "accuracy": dice.uniform(80, 99), "samples_per_second": 812.5},
        "reason_code": Reason.COMPLETED,
        "error": {"kind": "ValueError", "message": "broken", "traceback": _TRACEBACK} if state == "FAILED" else {},
    }


def _pick(dice: random.Random, rows: list[Any]) -> Any:
    """The first the most often, each next one less."""
    return dice.choices(rows, cum_weights=_WEIGHTS[: len(rows)])[0]


def _batches(jobs: Iterator[Job], size: int) -> Iterator[list[Job]]:
    while batch := list(islice(jobs, size)):
        yield batch
