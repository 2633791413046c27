"""Tests of a snapshot's facts about jobs under policy goodput."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs.control.snapshots import snapshot
from jobs.models import InstanceGroup, Job, JobProfile, JobRun, SlotClaim
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.models import Slot

pytestmark = pytest.mark.django_db

FITTED = {
    "compute_base": 0.01, "compute_per_sample": 0.001, "host_base": 0.01, "host_per_rank": 0.0, "network_base": 0.02,
    "network_per_rank": 0.0, "overlap": 1.5,
}  # fmt: skip


@pytest.fixture
def job(cluster: Cluster, submit: Submit) -> Job:
    InstanceGroup.objects.update(policy="goodput", aim="used", preemption=True)
    job = submit(max_slots=8)
    cluster.turn(2)
    return job


def profiled(job: Job, **columns: Any) -> JobProfile:
    values = {"batch_size": 64, "parameters": {"A": FITTED}, "largest_ranks": 2, "at": timezone.now()}
    return JobProfile.objects.create(job=job, **values | columns)


def test_gpu_time_counts_slots_that_were_given_back(job: Job) -> None:
    now = timezone.now()
    SlotClaim.objects.filter(job=job).update(claimed_at=now - timedelta(seconds=10))
    count = SlotClaim.objects.filter(job=job).count()
    claim = SlotClaim.objects.filter(job=job)[0]
    claim.pk, claim.claimed_at, claim.released_at = None, now - timedelta(seconds=100), now - timedelta(seconds=60)
    claim.save()
    [view] = snapshot(now).jobs
    assert view.gpu_seconds == pytest.approx(10 * count + 40, abs=0.01)
    assert view.target == count
    assert view.profile is None


def test_progress_says_how_many_steps_remain(job: Job) -> None:
    profiled(job, pause_seconds=0.25)
    JobRun.objects.filter(job=job).update(step=30, progress=0.25)
    [view] = snapshot(timezone.now()).jobs
    assert view.profile is not None
    assert view.profile.remaining_steps == pytest.approx(90)
    assert view.profile.pause_seconds == 0.25
    assert view.profile.parameters["A"].overlap == 1.5
    JobRun.objects.filter(job=job).update(progress=None)
    [view] = snapshot(timezone.now()).jobs
    assert view.profile is not None
    assert view.profile.remaining_steps is None


def test_starts_and_generations_after_the_first_are_changes(job: Job) -> None:
    for attempt, generation, changes in ((0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 4, 3), (3, 1, 2), (3, 4, 5)):
        JobRun.objects.filter(job=job).update(attempt=attempt, generation=generation)
        [view] = snapshot(timezone.now()).jobs
        assert view.changes == changes


def test_a_training_grows_as_it_is_measured(cluster: Cluster, job: Job) -> None:
    job.refresh_from_db()
    assert job.run.target_slots == 2
    assert (job.reason_code, job.reason_params["message"]) == ("PROFILING", "unmeasured")
    profiled(job)
    cluster.turn(3)
    job.refresh_from_db()
    assert job.run.target_slots == 4


def test_a_training_moves_to_the_kind_of_gpu_that_suits_it(cluster: Cluster, job: Job) -> None:
    own = SlotClaim.objects.filter(job=job)[0].slot.host.name
    for name, host in cluster.hosts.items():
        host.device = "slow" if name == own else "fast"
    faster = {**FITTED, "compute_base": 0.001, "compute_per_sample": 0.0001}
    profiled(job, parameters={"slow": FITTED, "fast": faster})
    cluster.turn(4)
    job.refresh_from_db()
    assert job.run.target_kind == "fast"
    held = SlotClaim.objects.kept().filter(job=job).values_list("slot__device_model", flat=True)
    assert set(held) == {"fast"}
    assert job.events.filter(reason="MOVED_FOR_GOODPUT").exists()
    assert job.reason_params["kind"] == "fast"


def test_the_group_says_its_aim_and_slots_their_kind(job: Job) -> None:
    seen = snapshot(timezone.now())
    assert [(group.policy, group.aim) for group in seen.groups] == [("goodput", "used")]
    assert {slot.device for slot in seen.slots} <= set(Slot.objects.values_list("device_model", flat=True))


def test_measures_and_ratios_take_four_queries_for_any_number(
    cluster: Cluster, submit: Submit, job: Job, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(9):  # no job was measured on another kind than those there are
        snapshot(timezone.now())
    for number in range(3):
        profiled(submit(name=f"T{number}", max_slots=1))
    cluster.cycle()
    with django_assert_num_queries(11):
        snapshot(timezone.now())
