"""A cluster's history: any number of jobs as a team leaves them behind over two years, made in seconds."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.utils import timezone

from datasets.models import Dataset, DatasetVersion
from jobs.messages import message
from jobs.models import AllocationPoint, Checkpoint, InstanceGroup, Job, JobRun, SlotClaim
from jobs.states import HOLDING, TERMINAL, JobState, Reason
from models_registry.models import RegisteredModel, RegisteredModelVersion
from scheduling.plan import PlanReason
from tests.factories import RUN_COLUMNS, InstanceGroupFactory, ResourceGroupFactory, host_with_slots
from workers.models import Slot

__all__ = ["make_courses", "make_many_jobs"]

OWNERS, MODELS, DATASETS, GROUPS = 40, 25, 12, 4
YEARS = timedelta(days=730)
SLOTS_PER_HOST = 8
_SHARED = message(
    "by_priority", target=4, capacity=8, missing=0, others_count=11, priority=5000, total_priority=63000, max_slots=8
)
_CODE = Path(__file__).parent / "journey" / "models" / "recorder"
#: Number of newest jobs, the only ones that may not have ended.
NEWEST = 400
_LATELY = {
    JobState.PENDING: 45,
    JobState.RUNNING: 12,
    JobState.SUSPENDED: 3,
    JobState.SUCCEEDED: 30,
    JobState.FAILED: 10,
}
_LONG_AGO = {JobState.SUCCEEDED: 72, JobState.FAILED: 17, JobState.CANCELLED: 11}
_Row = TypeVar("_Row")
_WORDS = ("baseline", "wide", "deep", "sweep", "ablation", "finetune", "resume", "debug", "large-batch", "cosine")
_WEIGHTS = list(accumulate(1 / (place + 1) for place in range(100)))
_TRACEBACK = "Traceback (most recent call last):\n" + '  File "main.py", line 41, in main\n    step()\n' * 8


@dataclass(frozen=True)
class _Cast:
    owners: list[User]
    models: list[RegisteredModelVersion]
    datasets: list[DatasetVersion]
    groups: list[InstanceGroup]


def make_many_jobs(count: int, *, seed: int = 0, now: datetime | None = None, newest: int = NEWEST) -> None:
    """`user-000` owns the most of them, each next user fewer; all are over but some of the `newest`."""
    dice, cast, now = random.Random(seed), _cast(), now or timezone.now()
    jobs = (
        _job(dice, cast, count - number <= newest, now - YEARS * (1 - (number + 1) / count), number)
        for number in range(count)
    )
    for batch in _batches(jobs, 2000):
        Job.objects.bulk_create(batch)
        JobRun.objects.bulk_create(job.run for job in batch)


def make_courses(*, seed: int = 0, now: datetime | None = None) -> None:
    """Add the courses of all jobs: changes of GPUs, checkpoints of those that succeeded, who held and holds what."""
    dice, now = random.Random(seed), now or timezone.now()
    holding = list(Job.objects.filter(state__in=HOLDING))
    for number in range(1 + len(holding) // SLOTS_PER_HOST):
        host_with_slots(f"gpu-{number:02}", SLOTS_PER_HOST)
    slots = list(Slot.objects.order_by("pk"))
    started = Job.objects.select_related("run").filter(started_at__isnull=False).order_by("pk")
    for batch in _batches(started.iterator(chunk_size=2000), 2000):
        AllocationPoint.objects.bulk_create(point for job in batch for point in _points(dice, job, now))
        Checkpoint.objects.bulk_create(_checkpoint(job) for job in batch if job.state == JobState.SUCCEEDED)
        SlotClaim.objects.bulk_create(_claim(job, dice.choice(slots)) for job in batch if job.finished_at)
    SlotClaim.objects.bulk_create(_claim(job, slot) for slot, job in zip(slots, holding, strict=False))


def _claim(job: Job, slot: Slot) -> SlotClaim:
    times = {"trains_from": job.started_at, "trained_until": job.finished_at, "released_at": job.finished_at}
    return SlotClaim(slot=slot, job=job, attempt=1, claimed_at=job.started_at, **times)


def _points(dice: random.Random, job: Job, now: datetime) -> Iterator[AllocationPoint]:
    """One at its start, some while it runs, and one at its end."""
    assert job.started_at is not None
    changes = dice.randint(0, 6)
    length = (job.finished_at or now) - job.started_at
    moments = [job.started_at, *sorted(job.started_at + length * dice.random() for _ in range(changes))]
    for generation, at in enumerate(moments, start=1):
        yield _point(job, at, generation, dice.randint(1, job.max_slots))
    if job.finished_at:
        yield _point(job, job.finished_at, len(moments) + 1, 0)


def _point(job: Job, at: datetime, generation: int, slots: int) -> AllocationPoint:
    return AllocationPoint(
        job=job,
        at=at,
        slots=slots,
        attempt=1,
        generation=generation,
        reason_code=PlanReason.REBALANCED,
        reason_params=dict(_SHARED),
        pause_ms=21.5,
    )


def _checkpoint(job: Job) -> Checkpoint:
    return Checkpoint(
        job=job, attempt=1, step=job.run.step, epoch=1, path="c", size_bytes=1, sha256="0" * 64,
        created_at=job.finished_at,
    )  # fmt: skip


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
            RegisteredModelVersion(model=model, number=number, path=str(_CODE), entry_point="train.py", digest="0" * 64)
            for model in models
            for number in (1, 2, 3)
        ),
        DatasetVersion.objects.bulk_create(
            DatasetVersion(dataset=dataset, number=1, path="/", state="READY", size_bytes=4, file_count=1)
            for dataset in datasets
        ),
        [
            InstanceGroupFactory(name=f"group-{number}", resource_group=ResourceGroupFactory(name=f"hosts-{number}"))
            for number in range(GROUPS)
        ],
    )


def _job(dice: random.Random, cast: _Cast, is_new: bool, submitted: datetime, number: int) -> Job:
    chances = _LATELY if is_new else _LONG_AGO
    state = dice.choices(list(chances), weights=list(chances.values()))[0]
    course = _course(dice, state, submitted)
    of_run = {name: course.pop(name) for name in RUN_COLUMNS & course.keys()}
    job = Job(
        name=f"{dice.choice(_WORDS)}-{dice.choice(_WORDS)}-{number % 977}",
        owner=_pick(dice, cast.owners),
        model=_pick(dice, cast.models),
        dataset=_pick(dice, cast.datasets),
        instance_group=_pick(dice, cast.groups),
        state=state,
        max_slots=dice.choice((1, 2, 4, 8, 8, 16)),
        priority=dice.choice((1000, 5000, 5000, 5000, 8000, 10000)),
        parameters={"epochs": dice.randint(1, 90), "lr": dice.choice((0.1, 0.01, 0.003))},
        reason_params=message("trained", step=600, epoch=9),
        submitted_at=submitted,
        **course,
    )
    job.run = JobRun(job=job, **of_run)
    return job


def _course(dice: random.Random, state: JobState, submitted: datetime) -> dict[str, Any]:
    if state in (JobState.PENDING, JobState.SUSPENDED):
        return {"reason_code": PlanReason.WAITING_FOR_SLOTS}
    started = submitted + timedelta(minutes=dice.expovariate(0.1))
    if state not in TERMINAL:
        return {"started_at": started, "slots": 1, "target_slots": 1, "step": 820, "progress": dice.random()}
    return {
        "started_at": started,
        "finished_at": started + timedelta(minutes=dice.expovariate(0.01)),
        "attempt": 1,
        "step": dice.randint(1, 90_000),
        "progress": 1.0 if state == JobState.SUCCEEDED else dice.random(),
        "final_metrics": {"loss": dice.random(), "accuracy": dice.uniform(80, 99), "samples_per_second": 812.5},
        "reason_code": Reason.COMPLETED,
        "error": {"kind": "ValueError", "message": "broken", "traceback": _TRACEBACK} if state == "FAILED" else {},
    }


def _pick(dice: random.Random, rows: list[Any]) -> Any:
    """The first the most often, each next one less."""
    return dice.choices(rows, cum_weights=_WEIGHTS[: len(rows)])[0]


def _batches(rows: Iterator[_Row], size: int) -> Iterator[list[_Row]]:
    while batch := list(islice(rows, size)):
        yield batch
