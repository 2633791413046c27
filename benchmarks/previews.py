"""Cost of the preview beside the Train form while somebody types: the whole request, queries included.

    python -m benchmarks.previews [--json FILE] [--jobs 1000 10000]

So many jobs are active on as many slots: those that run tell their progress, a tenth as many are over and tell how long
trainings take. Asked is for a training that starts by taking from others, and for one that must wait. CPU as in
`benchmarks.job_list`, with a database of its own, which it makes and drops.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

from benchmarks.job_list import analysed, cpu_of, with_database
from benchmarks.results import Result, arguments, result, show
from benchmarks.scheduler import SLOTS_PER_HOST, cycles
from scheduling.snapshot import Snapshot

REPEATS = 7
#: Fields of the form over those that are usual.
ASKED = {"shares": {}, "waits": {"priority": "1", "min_slots": "64", "max_slots": "64"}}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1_000, 10_000])
    options = parser.parse_args()
    show([found for jobs in options.jobs for found in with_database(lambda jobs=jobs: measure(jobs))], options.json)


def measure(jobs: int) -> list[Result]:
    from django.test import Client

    from jobs.models import InstanceGroup
    from tests.factories import UserFactory
    from tests.many_jobs import make_courses, make_many_jobs

    make_many_jobs(jobs // 10, newest=0)
    make_courses()
    form = make_active(cycles("fairshare", jobs, jobs)["steady"])
    form["instance_group"] = InstanceGroup.objects.get(name="research").pk
    analysed()
    client = Client(headers={"host": "127.0.0.1"})
    client.force_login(UserFactory())
    results = []
    for name, asked in ASKED.items():
        values = {**form, **asked}
        answer = preview(client, values)
        assert bool(answer["target_slots"]) == (name == "shares"), answer
        times = [cpu_of(lambda values=values: preview(client, values)) for _ in range(REPEATS)]
        results.append(result(f"preview of one that {name}, {jobs:,} jobs on as many slots", "ms", times))
    return results


def preview(client: object, values: dict[str, object]) -> dict[str, object]:
    answer = client.post("/jobs/new/preview/", values).json()  # type: ignore[attr-defined]
    assert "preview" in answer, answer
    return dict(answer["preview"])


def make_active(snapshot: Snapshot) -> dict[str, object]:
    """Rows for a snapshot, as its jobs have brought them about; the Train form filled in."""
    from django.utils import timezone

    from datasets.models import DatasetVersion
    from jobs.messages import message
    from jobs.models import AllocationPoint, Job, JobRun, SlotClaim
    from models_registry.models import RegisteredModelVersion
    from tests.factories import InstanceGroupFactory, ResourceGroupFactory
    from workers.models import Host, Slot

    dice, now = random.Random(0), timezone.now()
    group = InstanceGroupFactory(name="research", resource_group=ResourceGroupFactory(name="gpus"))
    models = list(RegisteredModelVersion.objects.order_by("pk"))
    datasets = list(DatasetVersion.objects.filter(state="READY"))
    owners = sorted({model.model.owner_id for model in models})
    held = Counter(slot.held_by for slot in snapshot.slots)
    rows = Job.objects.bulk_create(
        (
            Job(
                name=view.name,
                owner_id=dice.choice(owners),
                model=dice.choice(models),
                dataset=dice.choice(datasets),
                instance_group=group,
                state=view.state,
                min_slots=view.min_slots,
                max_slots=view.max_slots,
                priority=view.priority,
                parameters={"epochs": dice.randint(1, 90)},
                reason_params=message("submitted"),
                submitted_at=now - timedelta(hours=2) + timedelta(milliseconds=view.id),
                started_at=now if held[view.id] else None,
            )
            for view in snapshot.jobs
        ),
        batch_size=2000,
    )
    JobRun.objects.bulk_create(
        (
            JobRun(job=row, **({"progress": dice.random(), "slots": held[view.id]} if held[view.id] else {}))
            for view, row in zip(snapshot.jobs, rows, strict=True)
        ),
        batch_size=2000,
    )
    jobs = {view.id: row for view, row in zip(snapshot.jobs, rows, strict=True)}
    AllocationPoint.objects.bulk_create(
        AllocationPoint(
            job=job, at=now - timedelta(minutes=30 * part), slots=held[number], attempt=1, generation=part,
            reason_code="GRANTED",
        )
        for number, job in jobs.items() if held[number] for part in (1, 2, 3)
    )  # fmt: skip
    names = sorted({slot.ref.host for slot in snapshot.slots})
    hosts = {
        host.name: host
        for host in Host.objects.bulk_create(
            Host(name=name, state=Host.State.ONLINE, ncpus=64, ngpus=SLOTS_PER_HOST, memory_bytes=1, last_report_at=now)
            for name in names
        )
    }
    slots = Slot.objects.bulk_create(Slot(host=hosts[view.ref.host], index=view.ref.index) for view in snapshot.slots)
    SlotClaim.objects.bulk_create(
        SlotClaim(slot=slot, job=jobs[view.held_by], attempt=1, claimed_at=now)
        for slot, view in zip(slots, snapshot.slots, strict=True)
        if view.held_by is not None
    )
    usual = {"name": "new", "model": models[0].model_id, "dataset": datasets[0].dataset_id}
    return {**usual, "min_slots": "1", "max_slots": "8", "priority": "5000", "exactness": "sum", "seed": "0"}


if __name__ == "__main__":
    main()
