"""Jobs of one process that holds several slots, through the database alone."""

import pytest

from jobs import actions
from jobs.models import AllocationPoint, Generation, Job, Rank, SlotClaim
from jobs.states import JobState
from models_registry.models import RegisteredModelVersion
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(cluster: Cluster, submit: Submit, code: RegisteredModelVersion) -> Job:
    """Return a running job, whose process holds three slots of gpu-host-1."""
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine=RegisteredModelVersion.Engine.SINGLE)
    job = submit(max_slots=3, gpus_per_process="all")
    cluster.turn()
    cluster.train(job, plain=True)
    return fresh(job)


def fresh(job: Job) -> Job:
    return Job.objects.select_related("run", "model").get(pk=job.pk)


def test_it_trains_on_all_of_its_slots(job: Job) -> None:
    assert (job.state, job.run.slots) == (JobState.RUNNING, 3)
    rank = Rank.objects.get(job=job)
    assert (rank.rank, rank.slot, rank.state) == (0, 0, "RUNNING")
    assert Generation.objects.get(job=job).world_size == 3
    assert [point.slots for point in AllocationPoint.objects.filter(job=job).order_by("pk")] == [0, 3]
    assert SlotClaim.objects.open().filter(job=job, trains_from__isnull=False).count() == 3
    assert {claim.slot.host.name for claim in SlotClaim.objects.open().filter(job=job)} == {"gpu-host-1"}


@pytest.mark.parametrize(("end", "state"), [({"code": 0}, JobState.SUCCEEDED), ({"code": 1}, JobState.FAILED)])
def test_the_end_of_its_process_is_its_end(cluster: Cluster, job: Job, end: dict[str, int], state: JobState) -> None:
    cluster.hosts["gpu-host-1"].end(0, **end)
    cluster.report()
    assert fresh(job).state == state
    cluster.settle()
    assert not SlotClaim.objects.open().filter(job=job).exists()


def test_a_stop_frees_no_slot_before_the_process_has_ended(cluster: Cluster, job: Job) -> None:
    actions.suspend(job.pk, "alice")
    host = cluster.hosts["gpu-host-1"]
    host.applied = 10_000  # the host has heard of it, and its process still saves
    cluster.report()
    assert SlotClaim.objects.open().filter(job=job).count() == 3
    cluster.settle()
    assert fresh(job).state == JobState.SUSPENDED
    assert not SlotClaim.objects.open().filter(job=job).exists()


def test_a_rank_of_another_place_is_not_believed(cluster: Cluster, job: Job) -> None:
    before = Generation.objects.get(job=job).members
    stranger = [{"member_id": "gpu-host-2.0.1", "rank": 0, "host": "gpu-host-1", "slot": slot} for slot in range(3)]
    cluster.hosts["gpu-host-1"].write(
        job, "coordinator", "generation_active", generation=2, world_size=3, step=0, pause_ms=0.0,
        target_revision=1, members=stranger, cause="resize",
    )  # fmt: skip
    cluster.report()
    assert [each.members for each in Generation.objects.filter(job=job)] == [before]
