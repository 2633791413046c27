"""A training of exactness bitwise goes on with the GPU model on which it began, and says so."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from jobs.actions.job_commands import resume, suspend
from jobs.control.leaving import leave_in_time
from jobs.messages import text_of
from jobs.models import Job, JobRun, SlotClaim
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from tests.jobs.control.test_leaving import notice
from workers.actions import drain_host, resume_host

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(cluster: Cluster, submit: Submit) -> Job:
    """A training that runs on one of two hosts, whose GPUs are of different models."""
    for number, name in enumerate(sorted(cluster.hosts)):
        cluster.hosts[name].device = ["T4", "A100"][number]
    cluster.report()
    job = submit(max_slots=8, exactness="bitwise")
    cluster.turn(2)
    cluster.train(job)
    job.refresh_from_db()
    return job


def models_held(job: Job) -> set[str]:
    return set(SlotClaim.objects.kept().filter(job=job).values_list("slot__device_model", flat=True))


def test_it_begins_on_one_model_and_keeps_it_although_others_are_free(cluster: Cluster, job: Job) -> None:
    cluster.turn(3)
    job.refresh_from_db()
    assert (job.run.began_on, models_held(job)) == ("A100", {"A100"})
    assert (
        text_of(job.reason_params)
        == "4 of 8 GPUs: all that its group can use of A100 (exactness bitwise: other models compute other bits)."
    )


def test_with_a_checkpoint_it_waits_for_that_model(cluster: Cluster, job: Job) -> None:
    suspend(job.pk, "alice")
    cluster.settle()
    JobRun.objects.filter(job=job).update(saved_at=timezone.now())
    drain_host("gpu-host-2", "carol")
    resume(job.pk, "alice")
    cluster.turn(2)
    job.refresh_from_db()
    assert (job.state, models_held(job)) == ("PENDING", set())
    assert text_of(job.reason_params) == (
        "Waits for 1 GPU, all A100: its group can use none of them now (exactness bitwise: other models compute other "
        "bits)."
    )
    resume_host("gpu-host-2", "carol")
    cluster.turn(2)
    assert models_held(job) == {"A100"}


def test_on_a_host_that_goes_it_stops_with_a_checkpoint_rather_than_move(cluster: Cluster, job: Job) -> None:
    notice(cluster.hosts["gpu-host-2"], 30)
    cluster.cycle()
    leave_in_time(timezone.now() + timedelta(seconds=16))
    job.refresh_from_db()
    assert (job.state, models_held(job)) == ("PREEMPTING", set())
    assert job.run.halt_until is not None


def test_without_a_checkpoint_it_begins_anew_on_any_model(cluster: Cluster, job: Job) -> None:
    suspend(job.pk, "alice")
    cluster.settle()
    JobRun.objects.filter(job=job).update(saved_at=None)
    drain_host("gpu-host-2", "carol")
    resume(job.pk, "alice")
    cluster.turn(2)
    job.refresh_from_db()
    assert (models_held(job), job.run.began_on) == ({"T4"}, "T4")


def test_one_that_began_under_a_former_release_keeps_what_it_has(cluster: Cluster, job: Job) -> None:
    JobRun.objects.update(began_on="")
    cluster.cycle()
    assert JobRun.objects.get(job=job).began_on == "A100"


def test_the_page_names_the_model(cluster: Cluster, job: Job, alice_client: Client) -> None:
    page = alice_client.get(f"/jobs/{job.pk}/").content.decode()
    assert "Its GPUs are all A100, on which it began." in " ".join(page.split())


def test_others_may_have_several(cluster: Cluster, job: Job, submit: Submit) -> None:
    other = submit(name="other", max_slots=8)
    cluster.turn(3)
    other.refresh_from_db()
    assert other.run.began_on == ""
