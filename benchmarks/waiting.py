"""Pages, a cycle of the scheduler, and stopping them all, where 150 trainings wait or run and as many are over.

    python -m benchmarks.waiting [--json FILE] [--trainings 300] [--only fair]

Ten run and the rest waits, on hosts that a test plays: no rank competes for the processor. CPU as in `benchmarks.pages`
and queries of the whole answer, for an administrator. Then as many as `--trainings` that are not over are stopped by
one request: elapsed time. Uses a database of its own, which it makes and drops. `benchmarks.busy_cluster` measures the
running stack.
"""

import logging
import random
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from benchmarks.results import Result, arguments, result, show
from benchmarks.site import content_of, cpu_of, looked_after, signed_in, with_database

REPEATS = 9
RUNNING = 10


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--trainings", type=int, default=300)
    parser.add_argument("--only", default="", help="what has this in its name")
    options = parser.parse_args()
    show(with_database(lambda: measure(options.trainings, options.only)), options.json)


def measure(trainings: int, only: str) -> list[Result]:
    from django.conf import settings

    from tests.factories import UserFactory

    logging.disable(logging.WARNING)  # there is no broker, and each event would log that nobody hears it
    settings.TIDEPOOL_RESULTS_ROOT = tempfile.mkdtemp(prefix="tidepool-")
    carol = UserFactory(is_staff=True, username="carol")
    client = signed_in(carol)
    cluster, shared = make_cluster()
    make_ended(trainings // 2, shared)
    jobs = make_active(cluster, trainings - trainings // 2, shared)
    write_queues(cluster)
    looked_after()
    results = []
    for name, address in addresses(jobs).items():
        if only in name:
            results += cost_of(name, lambda address=address: content_of(client, address))
    if only in "cycle":
        results += cost_of("a cycle after a priority", lambda: (give_priority(jobs[-1]), cluster.cycle()))
    if only in "stop":
        jobs += [submit(shared, number) for number in range(trainings - len(jobs))]
        begun = time.perf_counter()
        stop(client, jobs)
        results.append(result(f"stop {len(jobs)} trainings", "s", [time.perf_counter() - begun]))
    return results


def cost_of(name: str, work: Callable[[], object]) -> list[Result]:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    work()
    with CaptureQueriesContext(connection) as captured:
        work()
    queries = len(captured)  # before the next request, which begins the log anew
    times = [cpu_of(work) for _ in range(REPEATS)]
    return [result(name, "ms", times), result(f"{name}: queries", "", [queries])]


def give_priority(job: int) -> None:
    """One that the job does not have: it changes the part of every training that runs, and the line."""
    from jobs import actions
    from jobs.models import Job

    former = Job.objects.values_list("priority", flat=True).get(pk=job)
    actions.change_job(job, actions.JobChange(priority=1 + former % 9999), "carol")


def addresses(jobs: list[int]) -> dict[str, str]:
    return {
        "overview": "/",
        "overview, again": "/overview/now/",
        "list of jobs": "/jobs/",
        "list of jobs, REST": "/api/v1/jobs/",
        "fair share": "/fair-share/",
        "usage": "/usage/",
        "cluster": "/cluster/",
        "a job that runs": f"/jobs/{jobs[0]}/",
        "a job that waits": f"/jobs/{jobs[-1]}/",
        "a job that waits, REST": f"/api/v1/jobs/{jobs[-1]}/",
        "instance groups": "/instance-groups/",
    }


def make_cluster() -> tuple[Any, dict[str, Any]]:
    """Two hosts of five GPUs, and what all trainings share."""
    from tests.factories import (
        DatasetVersionFactory,
        InstanceGroupFactory,
        RegisteredModelVersionFactory,
        UserFactory,
    )
    from tests.jobs.cluster import Cluster

    shared = {
        "model": RegisteredModelVersionFactory(parameters={"epochs": 10}),
        "dataset": DatasetVersionFactory(),
        "instance_group": InstanceGroupFactory(),
        "owners": [UserFactory(), UserFactory(), UserFactory()],
    }
    return Cluster.of("gpu-host-1", "gpu-host-2", slots=RUNNING // 2), shared


def submit(shared: dict[str, Any], number: int) -> int:
    from jobs.models import Job
    from tests.factories import JobFactory

    columns = {name: row for name, row in shared.items() if name != "owners"}
    job: Job = JobFactory(
        **columns,
        owner=shared["owners"][number % len(shared["owners"])],
        name=f"waiting-{number}",
        max_slots=1 + number % 4,
        priority=(1000, 2500, 5000, 5000, 10000)[number % 5],
        parameters={"epochs": 10 + number % 90},
    )
    return job.pk


def make_active(cluster: Any, count: int, shared: dict[str, Any]) -> list[int]:
    """Let as many jobs train as there are GPUs; the others wait, with the reasons that the scheduler gives them."""
    from jobs.models import Job

    jobs = [submit(shared, number) for number in range(count)]
    cluster.turn(2)
    for job in Job.objects.filter(state="STARTING").select_related("run"):
        for step in (1, 20):
            cluster.train(job, step, loss=0.5, accuracy=90.0)
    cluster.turn(2)
    running = set(Job.objects.filter(state="RUNNING").values_list("pk", flat=True))
    assert len(running) == RUNNING, len(running)
    return sorted(jobs, key=lambda job: job not in running)


def write_queues(cluster: Any) -> None:
    """Store positions and expected starts, which pages read, as the scheduler does after a plan."""
    from django.utils import timezone

    from jobs.control.durations import lengths, with_lengths
    from jobs.control.queues import KnownLengths, QueueWriter
    from jobs.control.snapshots import snapshot
    from scheduling.schedule import run_cycle

    now = timezone.now()
    known = KnownLengths(lengths({}, now), now)
    QueueWriter().write(run_cycle(with_lengths(snapshot(now), known.by_job, known.at)), known, cluster.epoch)


def make_ended(count: int, shared: dict[str, Any]) -> None:
    from django.utils import timezone

    from jobs.models import AllocationPoint, Job, SlotClaim
    from jobs.states import Reason
    from tests.factories import set_job
    from workers.models import Slot

    dice, slots = random.Random(0), list(Slot.objects.all())
    for number in range(count):
        job = Job.objects.get(pk=submit(shared, number))
        end = timezone.now() - timedelta(minutes=5 * dice.random() + number)
        start = end - timedelta(minutes=1 + 9 * dice.random())
        set_job(job, state="SUCCEEDED", submitted_at=start, started_at=start, finished_at=end, attempt=1, progress=1.0)
        SlotClaim.objects.create(
            slot=dice.choice(slots), job=job, attempt=1, claimed_at=start, trains_from=start, trained_until=end,
            released_at=end,
        )  # fmt: skip
        for at, held in ((start, 1), (end, 0)):
            AllocationPoint.objects.create(
                job=job, at=at, slots=held, attempt=1, generation=1 - held, reason_code=Reason.STARTED
            )


def stop(client: Any, jobs: list[int]) -> None:
    body = {"action": "cancel", "jobs": jobs}
    answer = client.post("/api/v1/jobs/bulk/", body, content_type="application/json").json()
    assert answer["done"] == jobs, answer


if __name__ == "__main__":
    main()
