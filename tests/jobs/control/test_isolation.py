"""A group that demands a level of isolation: its trainings wait in words, and never run at a lower level."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from msgspec import structs
from rest_framework.test import APIClient

from jobs.control.dispatch import build_sync
from jobs.models import InstanceGroup, Job, SlotClaim
from jobs.states import JobState
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.models import Host

pytestmark = pytest.mark.django_db

WORDS = "does not keep trainings apart as the group demands"


@pytest.fixture
def sealed(cluster: Cluster, group: InstanceGroup) -> Cluster:
    """A group that demands sealed trainings, and hosts that only give users of their own."""
    InstanceGroup.objects.filter(pk=group.pk).update(least_isolation="sealed")
    give(cluster, "separate")
    return cluster


def give(cluster: Cluster, level: str, *names: str) -> None:
    for host in cluster.hosts.values():
        if not names or host.name in names:
            host.facts["isolation"] = level
    cluster.report()


def holders(job: Job) -> set[str]:
    """Return the hosts whose GPUs the training has, without those that it gives up."""
    kept = SlotClaim.objects.open().filter(job=job, vacating_at=None).select_related("slot__host")
    return {claim.slot.host.name for claim in kept}


def test_a_wait_for_isolation_is_said_on_the_page_over_rest_and_why(
    sealed: Cluster, submit: Submit, alice: User, client: Client
) -> None:
    job = submit(min_slots=1, max_slots=1)
    sealed.turn(3)
    job.refresh_from_db()
    assert (job.state, holders(job)) == (JobState.PENDING, set())
    assert WORDS in job.reason_text
    assert all(host in job.reason_text for host in sealed.hosts)
    rest = APIClient()
    rest.force_authenticate(alice)
    assert WORDS in rest.get(f"/api/v1/jobs/{job.pk}/").json()["reason"]["text"]
    assert WORDS in rest.get(f"/api/v1/jobs/{job.pk}/why/").json()["text"], "what `tidepool why` prints"
    client.force_login(alice)
    assert WORDS in client.get(f"/jobs/{job.pk}/").content.decode()


@pytest.mark.parametrize("level", ["shared", "walled", "separate", "none", ""])
def test_no_training_gets_a_gpu_of_a_lower_level(sealed: Cluster, submit: Submit, level: str) -> None:
    give(sealed, level)
    job = submit(min_slots=1, max_slots=8)
    sealed.turn(3)
    assert not SlotClaim.objects.filter(job=job).exists()
    assert sealed.ranks(job) == []


def test_a_host_whose_level_falls_is_told_the_least_level_and_gives_its_trainings_up(
    sealed: Cluster, submit: Submit
) -> None:
    first, second = sealed.hosts
    give(sealed, "sealed", first)
    job = submit(min_slots=1, max_slots=1)
    sealed.turn(2)
    assert holders(job) == {first}
    [desired] = build_sync(first).jobs
    assert desired.least_isolation == "sealed"
    give(sealed, "separate", first)
    give(sealed, "sealed", second)
    sealed.turn(4)
    assert holders(job) == {second}


def test_a_group_that_demands_none_takes_any_host(cluster: Cluster, submit: Submit) -> None:
    give(cluster, "shared")
    job = submit(min_slots=1, max_slots=1)
    cluster.turn(2)
    [host] = holders(job)
    assert structs.asdict(build_sync(host).jobs[0])["least_isolation"] == ""
    assert Host.objects.get(name=host).isolation == "shared"
