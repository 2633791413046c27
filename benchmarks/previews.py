"""Cost of the preview beside the Train form while somebody types: the whole request, queries included.

    python -m benchmarks.previews [--json FILE] [--jobs 1000 10000]

So many jobs are active on as many slots: those that run tell their progress, a tenth as many are over and tell how long
trainings take. Asked is for a training that starts by taking from others, and for one that must wait. CPU as in
`benchmarks.pages`, with a database of its own, which it makes and drops.
"""

import random
from collections import Counter
from datetime import timedelta
from typing import Any

from benchmarks.results import Result, arguments, result, show
from benchmarks.scheduler import SLOTS_PER_HOST, cycles
from benchmarks.site import cpu_of, looked_after, signed_in, with_database
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
    from jobs.pages.train.forms import ON_PAGE
    from tests.factories import InstanceGroupFactory, ResourceGroupFactory, UserFactory
    from tests.many_jobs import make_courses, make_many_jobs

    make_many_jobs(jobs // 10, newest=0)
    make_courses()
    snapshot = cycles("fairshare", jobs, jobs)["steady"]
    group = InstanceGroupFactory(name="research", resource_group=ResourceGroupFactory(name="gpus"))
    active = make_jobs(snapshot, group)
    make_claims(snapshot, active)
    looked_after()
    job = active[snapshot.jobs[0].id]
    form = {"name": "new", "model": job.model.model_id, "dataset": job.dataset.dataset_id, "instance_group": group.pk}
    initial = {option.name: option.default if option.initial is None else option.initial for option in ON_PAGE}
    form |= {name: str(value) for name, value in initial.items() if value}
    client = signed_in(UserFactory())
    results = []
    for name, asked in ASKED.items():
        values = {**form, **asked}
        answer = preview(client, values)
        assert bool(answer["target_slots"]) == (name == "shares"), answer
        times = [cpu_of(lambda values=values: preview(client, values)) for _ in range(REPEATS)]
        results.append(result(f"preview of one that {name}, {jobs:,} jobs on as many slots", "ms", times))
    return results


def preview(client: Any, values: dict[str, object]) -> dict[str, object]:
    answer = client.post("/jobs/new/preview/", values).json()
    assert "preview" in answer, answer
    return dict(answer["preview"])


def make_jobs(snapshot: Snapshot, group: Any) -> dict[int, Any]:
    """Id in the snapshot -> a row, as the job has brought it about."""
    from django.utils import timezone

    from datasets.models import DatasetVersion
    from jobs.messages import message
    from jobs.models import AllocationPoint, Job, JobRun
    from models_registry.models import RegisteredModelVersion

    dice, now = random.Random(0), timezone.now()
    models = list(RegisteredModelVersion.objects.select_related("model"))
    datasets = list(DatasetVersion.objects.filter(state="READY"))
    held = Counter(slot.held_by for slot in snapshot.slots)
    jobs = {
        view.id: Job(
            name=view.name,
            owner_id=dice.choice(models).model.owner_id,
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
    }
    Job.objects.bulk_create(jobs.values(), batch_size=2000)
    progress = {number: {"progress": dice.random(), "slots": held[number]} for number in jobs if held[number]}
    JobRun.objects.bulk_create(
        (JobRun(job=job, **progress.get(number, {})) for number, job in jobs.items()), batch_size=2000
    )
    AllocationPoint.objects.bulk_create(
        AllocationPoint(
            job=jobs[number], at=now - timedelta(minutes=30 * part), slots=held[number], attempt=1, generation=part,
            reason_code="GRANTED",
        )
        for number in progress for part in (1, 2, 3)
    )  # fmt: skip
    return jobs


def make_claims(snapshot: Snapshot, jobs: dict[int, Any]) -> None:
    """Hosts, slots, and who holds them."""
    from django.utils import timezone

    from jobs.models import SlotClaim
    from tests.factories import HostFactory
    from workers.models import Slot

    names = sorted({view.ref.host for view in snapshot.slots})
    hosts = {name: HostFactory(name=name, ncpus=64, ngpus=SLOTS_PER_HOST, virtual=False) for name in names}
    slots = Slot.objects.bulk_create(Slot(host=hosts[view.ref.host], index=view.ref.index) for view in snapshot.slots)
    SlotClaim.objects.bulk_create(
        SlotClaim(slot=slot, job=jobs[view.held_by], attempt=1, claimed_at=timezone.now())
        for slot, view in zip(slots, snapshot.slots, strict=True)
        if view.held_by is not None
    )


if __name__ == "__main__":
    main()
