"""A cluster as people would meet it: two trainings that share eight GPUs, one that waits, others that are over."""

import json
import math
import random
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from datasets.inspection.findings import parts_of
from datasets.inspection.inspector import inspect
from datasets.models import DatasetVersion
from jobs.control.gpu_spans import SPAN, Span, store
from jobs.files.job_folder import job_folder
from jobs.gpu_time import cuts, to_ms
from jobs.messages import message
from jobs.models import (
    AllocationPoint,
    Checkpoint,
    GroupQueue,
    Job,
    JobEvent,
    JobTag,
    MetricPoint,
    NamedEnvironment,
    Note,
    Rank,
    SlotClaim,
)
from jobs.states import JobState, RankState, Reason
from models_registry.models import RegisteredModelVersion
from replay.models import Replay
from reports.models import Report, ReportBlock
from scheduling.plan import PlanReason
from studies.models import Study
from tests.environments import prepared_environment
from tests.example_study import example_study
from tests.factories import (
    DatasetFactory,
    DatasetVersionFactory,
    InstanceGroupFactory,
    JobFactory,
    ModelTemplateFactory,
    RegisteredModelFactory,
    RegisteredModelVersionFactory,
    ResourceGroupFactory,
    UserFactory,
    host_with_slots,
)
from workers.models import GpuReading, Slot

__all__ = ["PASSWORD", "Scene", "build_scene", "report_every_step", "user_who_can_log_in"]

PASSWORD = "correct horse battery"
CODE = '''"""Trains a small network on the digits."""

import argparse

from fabric_model import FabricModel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=0.001)
    options = parser.parse_args()
    FabricModel(model, datasets, loss, optimizer).train(options.epochs, batch_size=64, engines_number=8)


if __name__ == "__main__":
    main()
'''
#: Their curves have a point every so many steps, a divisor of the steps per epoch, and one at their last step.
STRIDE = 17
HELD_OUT = {"test_accuracy": 96.4, "test_loss": 0.11}
PACE = {"samples_per_second": 1210.0, "learning_rate": 0.01}
NOTE = """# Learning rate

0.1 **diverged**, see [the baseline](/jobs/1/).

| rate | loss |
|---|---|
| 0.1 | - |
| 0.01 | 0.08 |
"""
TRACEBACK = """Traceback (most recent call last):
  File "main.py", line 41, in <module>
    main()
  File "main.py", line 17, in main
    weights = torch.load("start.pt")
FileNotFoundError: [Errno 2] No such file or directory: 'start.pt'
"""


@dataclass(frozen=True)
class Scene:
    alice: User
    first: Job
    second: Job
    waiting: Job
    failed: Job
    done: Job
    model: RegisteredModelVersion
    dataset: DatasetVersion
    #: Alice's, too: a table that does not fit.
    refused: DatasetVersion
    #: Replay of the last hour under goodput: one of two trainings gains.
    replay: Replay
    #: Alice's, with a block of each kind.
    report: Report
    study: Study
    environment: NamedEnvironment


def user_who_can_log_in(name: str, **values: object) -> User:
    """With a hash that the product's own settings accept; it is weak, so that a log-in takes no time."""
    user = UserFactory(username=name, **values)
    user.password = PBKDF2PasswordHasher().encode(PASSWORD, "salt", 1000)
    user.save(update_fields=["password"])
    return user


@transaction.atomic
def build_scene(now: datetime | None = None) -> Scene:
    now = now or timezone.now()
    alice, bob = user_who_can_log_in("alice"), user_who_can_log_in("bob")
    slots = [slot for name in ("gpu-host-1", "gpu-host-2") for slot in host_with_slots(name, 4).slots.all()]
    for slot in slots:
        measured = {"utilisation_percent": random.uniform(70, 99), "memory_used_bytes": 212 * 1024**2}
        GpuReading.objects.create(slot=slot, at=now, **measured)
    pool = ResourceGroupFactory(name="ComputeHostsGPU", slot_rule="ngpus")
    group = InstanceGroupFactory(name="sig-elastic", resource_group=pool)
    dataset, model = _dataset(alice), _model(alice)
    common = {"model": model, "dataset": dataset, "instance_group": group, "owner": alice}
    done = _done(common, now - timedelta(minutes=50))
    failed = _failed(common, now - timedelta(minutes=25))
    first, second = _first(common, now, slots[:3]), _second(common, now, slots[3:])
    _measure(now)
    waiting = JobFactory(
        **{**common, "owner": alice},
        name="digits-wide",
        min_slots=8,
        priority=3000,
        reason_code=PlanReason.WAITING_FOR_SLOTS,
        reason_params=message("in_line", missing=8, min_slots=8, taken=8, capacity=8),
        submitted_at=now - timedelta(minutes=2),
    )
    GroupQueue.objects.create(group=waiting.instance_group, jobs=[[waiting.pk, None, None]])
    JobFactory(**{**common, "owner": bob}, name="bobs-secret", reason_params=message("submitted"))
    JobTag.objects.bulk_create([JobTag(job=second, name=name) for name in ("lr:0.1", "paper-3")])
    Note.objects.create(job=first, number=1, text=NOTE, author="alice", at=now)
    _checkpoint(done)
    scores = job_folder(done).attempt(1) / "scores.csv"
    scores.parent.mkdir(parents=True, exist_ok=True)
    scores.write_text("epoch,loss\n1,0.5\n2,0.25\n")
    return Scene(
        *(alice, first, second, waiting, failed, done, model, dataset, _refused(alice)),
        _replay(alice, done, failed, now),
        _report(alice, [first, second], now),
        example_study(done, now),
        prepared_environment(),
    )


def _report(owner: User, jobs: list[Job], now: datetime) -> Report:
    """Add a report as `reports` freezes one, of few points."""
    report = Report.objects.create(owner=owner, title="Two learning rates", created_at=now, changed_at=now)
    points = [[0, 1.0, 2.3, 0], [100, 61.5, 0.4, 1], [200, 120.0, 0.08, 2]]
    lines = [
        {"job": job.pk, "label": job.name, "metric": "loss", "every": 1, "points": points[number:]}
        for number, job in enumerate(jobs)
    ]
    chart = {"title": "Loss", "names": ["loss"], "is_stepped": False, "lines": lines}
    table = {"rows": [["learning-rate", ["0.1", "0.01"], True], ["Steps", ["200", "200"], False]]}
    sources = [[job.pk, job.name] for job in jobs]
    blocks = [
        {"kind": "text", "text": "# What was tried\n\nA lower rate *converges*."},
        {"kind": "chart", "title": "Loss", "data": chart, "sources": sources},
        {"kind": "table", "title": "Results", "data": table, "sources": sources},
        {"kind": "note", "title": f"Note on {jobs[0].name}", "text": NOTE, "sources": sources[:1]},
    ]
    for place, block in enumerate(blocks):
        size_bytes = len(json.dumps(block["data"])) if "data" in block else 0
        ReportBlock.objects.create(report=report, place=place, added_at=now, size_bytes=size_bytes, **block)
    return report


def _replay(owner: User, done: Job, failed: Job, now: datetime) -> Replay:
    """Add a replay that was played."""
    start = now - timedelta(hours=1)

    def figures(average: float, wait: float) -> dict[str, float]:
        times = {"average": average, "median": average, "p99": 1.3 * average, "longest_wait": wait}
        return {"jobs": 2, "unfinished": 0, **times, "gpu_hours": 3.2, "idle_gpu_hours": 4.8, "worst_slowdown": 1.4}

    def bands(*minutes: int) -> list[dict[str, Any]]:
        ends = zip((done.pk, failed.pk, 0), (5, 20, 35), minutes, (4, 2, 3), strict=True)
        steps = [(job, (start + timedelta(minutes=at)).timestamp(), 60 * lasts, gpus) for job, at, lasts, gpus in ends]
        return [{"job": job, "steps": [[at, gpus], [at + lasts, 0]]} for job, at, lasts, gpus in steps]

    began = (start + timedelta(minutes=5)).timestamp()
    alone = message("maximum", target=4, capacity=8, max_slots=4, missing=0)
    moments = {"held": [[began, done.pk, 4]], "notes": [[began, done.pk, 4, alone]]}
    counts = {"trainings": 5, "counted": 2, "unfinished": 3, "withdrawn": 0, "unmeasured": 1, "gpus": 8}
    series = {"recorded": bands(14, 13, 20), "same": bands(14, 13, 20), "other": bands(11, 16, 20)}
    result = {
        **counts,
        "recorded": figures(810, 120),
        "same": [figures(824, 118)],
        "other": [figures(700, 30), figures(760, 31)],
        "errors": {"average": 0.017, "gpus": 0.041, "per_job": 0.022},
        "is_good": True,
        "is_too_large": False,
        "groups": {
            "sig-elastic": {
                "counted": 2,
                "recorded": figures(810, 120) | {"idle_gpu_hours": None},
                "same": [figures(824, 118) | {"idle_gpu_hours": None}],
                "other": [figures(700, 30) | {"idle_gpu_hours": None}, figures(760, 31) | {"idle_gpu_hours": None}],
            }
        },
        "series": series,
        "cpu_seconds": 1.2,
    }
    return Replay.objects.create(
        owner=owner,
        created_at=now,
        start=start,
        end=now,
        alternative={"groups": {"sig-elastic": {"policy": "goodput", "aim": "soon"}}},
        state=Replay.State.DONE,
        progress=1,
        result=result,
        jobs=[
            [done.pk, True, True, 840.0, 2.0, 850.0, 850.0, 2.0, 660.0, 700.0, 2.0],
            [failed.pk, True, False, 780.0, 120.0, 798.0, 798.0, 118.0, 900.0, 990.0, 30.0],
        ],
        moments=dict.fromkeys(("recorded", "same", "other"), moments),
    )


def _dataset(owner: User) -> DatasetVersion:
    folder = Path(settings.TIDEPOOL_DATA_ROOTS[0], "digits")
    folder.mkdir(parents=True, exist_ok=True)
    dataset = DatasetFactory(name="digits", owner=owner, description="Handwritten digits, 8 by 8 pixels.")
    found = _pictures(folder)
    return DatasetVersionFactory(
        dataset=dataset, number=1, path=str(folder), size_bytes=1_437_000, file_count=4, **found
    )


def _pictures(folder: Path) -> dict[str, Any]:
    """Images in an array, and what a check says about them."""
    labels = np.array([number % 4 for number in range(22)])
    images = np.array([np.roll(np.arange(64.0), 9 * label).reshape(8, 8) for label in labels])
    np.savez(folder / "train.npz", images=images, labels=labels)
    np.savez(folder / "test.npz", images=images[:6], labels=labels[:6])
    findings = inspect(parts_of(folder), "images").findings
    return {"summary": findings.summary(), "samples": [asdict(sample) for sample in findings.samples]}


def _refused(owner: User) -> DatasetVersion:
    folder = Path(settings.TIDEPOOL_DATA_ROOTS[0], "measurements")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.csv").write_text("width,height,label\n1.5,2,cat\n2.5,,dog\n3.5,1\n")
    findings = inspect(parts_of(folder), "csv").findings
    return DatasetVersionFactory(
        dataset=DatasetFactory(name="measurements", owner=owner, kind="csv"),
        number=1,
        path=str(folder),
        state=DatasetVersion.State.INVALID,
        problem="\n".join(findings.problems),
        summary=findings.summary(),
    )


def _model(owner: User) -> RegisteredModelVersion:
    folder = Path(settings.TIDEPOOL_MODEL_ROOTS[0], "digits-cnn")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.py").write_text(CODE)
    model = RegisteredModelFactory(name="digits-cnn", owner=owner, description="A small convolutional network.")
    template = ModelTemplateFactory(
        name="digits-cnn", owner=owner, path=str(folder), digest="3f" * 32, description=model.description
    )
    return RegisteredModelVersionFactory(
        model=model,
        number=1,
        template=template,
        path=str(folder),
        settings={"learning_rate": 0.001, "optimizer": "Adam"},
        parameters={"learning-rate": 0.001, "epochs": 20},
        default_dataset="digits",
        digest="3f" * 32,
    )


def _checkpoint(job: Job) -> None:
    facts = {"attempt": 1, "epoch": 9, "size_bytes": 4_812_000, "sha256": "0" * 64, "created_at": job.finished_at}
    Checkpoint.objects.create(job=job, step=600, path="attempt-1/checkpoint/step-000000600", **facts)


def _first(common: dict, now: datetime, slots: list[Slot]) -> Job:
    job = JobFactory(
        **common,
        name="T1 digits-cnn",
        state=JobState.RUNNING,
        slots=3,
        target_slots=3,
        attempt=1,
        generation=4,
        step=820,
        epoch=12,
        progress=0.62,
        final_metrics={"loss": 0.081, "accuracy": 97.1, **HELD_OUT, **PACE},
        reason_code=PlanReason.SHRUNK_FOR_FAIR_SHARE,
        reason_params=shares(3, "compared", others=[_other("T2 digits-cnn", 10000)]),
        submitted_at=now - timedelta(minutes=10),
        started_at=now - timedelta(minutes=10),
    )
    changes = [
        (10.0, 1, PlanReason.GRANTED, shares(1, "others_have", others_count=2, others_slots=7), None),
        (9.6, 8, PlanReason.GREW_INTO_FREE_SLOTS, shares(8, "maximum"), 38.4),
        (6.0, 4, PlanReason.SHRUNK_FOR_FAIR_SHARE, shares(4, "compared", others=[_other("T2 digits-cnn", 5000)]), 41.2),
        (2.5, 3, PlanReason.SHRUNK_FOR_FAIR_SHARE, job.reason_params, 36.9),
    ]
    _history(job, now, changes, slots)
    _metrics(job, now - timedelta(minutes=10), 820, per_epoch=68)
    return job


def _second(common: dict, now: datetime, slots: list[Slot]) -> Job:
    job = JobFactory(
        **common,
        name="T2 digits-cnn",
        state=JobState.RUNNING,
        slots=5,
        target_slots=5,
        attempt=1,
        generation=2,
        step=400,
        epoch=5,
        progress=0.28,
        priority=10000,
        final_metrics={"loss": 0.4, "accuracy": 89.0, **HELD_OUT, **PACE},
        reason_code=PlanReason.GREW_INTO_FREE_SLOTS,
        reason_params=shares(5, "compared", priority=10000, others=[_other("T1 digits-cnn", 5000)]),
        submitted_at=now - timedelta(minutes=6.2),
        started_at=now - timedelta(minutes=6),
    )
    changes = [
        (5.9, 4, PlanReason.GRANTED, shares(4, "compared", others=[_other("T1 digits-cnn", 5000)]), None),
        (2.4, 5, PlanReason.GREW_INTO_FREE_SLOTS, job.reason_params, 35.0),
    ]
    _history(job, now, changes, slots)
    _metrics(job, now - timedelta(minutes=6), 400, per_epoch=68)
    return job


def _done(common: dict, at: datetime) -> Job:
    job = JobFactory(
        **common,
        name="digits-baseline",
        state=JobState.SUCCEEDED,
        attempt=1,
        generation=1,
        step=600,
        epoch=9,
        progress=1.0,
        final_metrics={"loss": 0.05, "accuracy": 98.2, **HELD_OUT, **PACE},
        reason_code=Reason.COMPLETED,
        reason_params=message("trained", step=600, epoch=9),
        submitted_at=at,
        started_at=at,
        finished_at=at + timedelta(minutes=12),
    )
    _points(
        job,
        [
            (at, 4, PlanReason.GRANTED, shares(4, "maximum", max_slots=4), None),
            (job.finished_at, 0, Reason.COMPLETED, job.reason_params, None),
        ],
    )
    _metrics(job, at, 600, per_epoch=68)
    return job


def _failed(common: dict, at: datetime) -> Job:
    """Add a failure of an older version of the model: a script that knows nothing of sessions."""
    model = RegisteredModelVersionFactory(
        model=common["model"].model, number=0, engine=RegisteredModelVersion.Engine.SINGLE
    )
    job = JobFactory(
        **{**common, "model": model},
        name="digits-resume",
        state=JobState.FAILED,
        attempt=1,
        reason_code=Reason.EXIT_NONZERO,
        reason_params=message("failed", host="gpu-host-1", error="FileNotFoundError: start.pt"),
        error={"kind": "FileNotFoundError", "message": "No such file or directory: 'start.pt'", "traceback": TRACEBACK},
        submitted_at=at,
        started_at=at,
        finished_at=at + timedelta(seconds=9),
    )
    _event(job, 1, "", JobState.FAILED, Reason.EXIT_NONZERO, job.reason_params, at)
    return job


def _history(job: Job, now: datetime, changes: list[tuple], slots: list[Slot]) -> None:
    _points(job, [(now - timedelta(minutes=ago), *rest) for ago, *rest in changes])
    for number, (ago, _, reason, params, _pause) in enumerate(changes, start=1):
        old = JobState.PENDING if number == 1 else JobState.RUNNING
        _event(job, number, old, JobState.RUNNING, reason, params, now - timedelta(minutes=ago))
    for rank, slot in enumerate(slots):
        SlotClaim.objects.create(slot=slot, job=job, attempt=1, claimed_at=now, trains_from=now)
        Rank.objects.create(
            job=job,
            attempt=1,
            member_id=f"{slot.host.name}.{slot.index}.1",
            host=slot.host.name,
            slot=slot.index,
            pid=4000 + job.pk * 10 + rank,
            started_at=(now - timedelta(minutes=changes[0][0])).timestamp(),
            state=RankState.RUNNING,
            rank=rank,
            generation=job.run.generation,
        )


def _measure(now: datetime) -> None:
    """Store how busy the held GPUs were in the last six minutes."""
    cut = [*cuts(to_ms(now - timedelta(minutes=6)), to_ms(now), SPAN)]
    for claim in SlotClaim.objects.select_related("slot"):
        uses = [(random.uniform(40, 98), random.randrange(200, 220) * 1024**2) for _ in cut]
        store(claim.slot.host_id, [Span(claim.pk, *ends, *use) for ends, use in zip(cut, uses, strict=True)])


def _points(job: Job, changes: list[tuple]) -> None:
    for generation, (at, slots, reason, params, pause_ms) in enumerate(changes, start=1):
        AllocationPoint.objects.create(
            job=job,
            at=at,
            slots=slots,
            attempt=1,
            generation=generation,
            reason_code=reason,
            reason_params=params,
            pause_ms=pause_ms,
        )


def _event(job: Job, seq: int, old: str, new: str, reason: Reason, params: dict[str, Any], at: datetime) -> None:
    JobEvent.objects.create(job=job, seq=seq, old=old, new=new, reason=reason, detail=params, actor="scheduler", at=at)


def shares(target: int, rule: str, **figures: Any) -> dict[str, Any]:
    """Params of a line of a plan: `target` of 8 GPUs, by this rule."""
    limits = {"capacity": 8, "missing": 0, "priority": 5000, "min_slots": 1, "max_slots": 8}
    return message(rule, target=target, **{**limits, **figures})


def _other(name: str, priority: int) -> dict[str, Any]:
    return {"job": 0, "name": name, "slots": 0, "priority": priority, "min_slots": 1, "max_slots": 8}


def report_every_step(job: Job) -> None:
    """Store all points of its curves: more than a chart draws."""
    assert job.started_at
    job.metrics.all().delete()
    _metrics(job, job.started_at, job.run.step, per_epoch=68, stride=1)


def _metrics(job: Job, start: datetime, steps: int, per_epoch: int, stride: int = STRIDE) -> None:
    noise = random.Random(job.pk)
    rows = []
    for step in sorted({*range(stride, steps + 1, stride), steps}):
        at, epoch = start + timedelta(seconds=step * 0.7), step // per_epoch
        loss: float | None = 2.3 * math.exp(-step / 160) + 0.05 + noise.uniform(0, 0.08)
        if 150 <= step <= 160:
            loss = None
        accuracy = 100 * (1 - 0.9 * math.exp(-step / 120)) - noise.uniform(0, 3)
        rows += [("loss", step, epoch, loss, at), ("accuracy", step, epoch, accuracy, at)]
        rows.append(("samples_per_second", step, epoch, 1200 + noise.uniform(-60, 60), at))
        rows.append(("learning_rate", step, epoch, 0.01 if step < 500 else 0.001, at))
        if step % per_epoch == 0:
            rows.append(("test_accuracy", step, epoch, accuracy - 1, at))
            rows.append(("test_loss", step, epoch, (loss or 0.1) + 0.03, at))
    # Five hundred, in many tests: rows of Django would take half of the time that a scene does.
    adapted = connection.ops.adapt_datetimefield_value
    columns = "(job_id, name, step, epoch, value, at) VALUES (%s, %s, %s, %s, %s, %s)"
    with connection.cursor() as cursor:
        values = [(job.pk, *row, adapted(at)) for *row, at in rows]
        cursor.executemany(f"INSERT INTO {MetricPoint._meta.db_table} {columns}", values)
