"""Cores and memory per GPU: what is refused at submission, what the scheduler reads, and what becomes of it."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from insights.previews import preview_submission
from jobs import actions
from jobs.actions import InvalidSubmission
from jobs.control.dispatch import launch_spec
from jobs.control.snapshots import snapshot
from jobs.messages import text_of
from jobs.models import Job, SlotClaim
from jobs.queries.shown_options import options_shown
from scheduling.snapshot import Share
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.models import Host

pytestmark = pytest.mark.django_db
GIB = 1024**3


@pytest.fixture
def shares(cluster: Cluster) -> None:
    """Give each of the hosts' four slots 8 cores and 32 GiB, beside what is reserved."""
    for host in cluster.hosts.values():
        host.facts |= {"cores": 34.0, "usable_memory_bytes": 130 * GIB, "reserved_cores": 2.0}
        host.facts |= {"reserved_memory_bytes": 2 * GIB}
        host.send()


def refused(submit: Submit, **options: Any) -> dict[str, list[str]]:
    with pytest.raises(InvalidSubmission) as caught:
        submit(**options)
    return dict(caught.value.fields)


@pytest.mark.usefixtures("shares")
def test_what_no_host_has_is_refused_with_the_largest(submit: Submit, cluster: Cluster) -> None:
    [name, *_] = sorted(cluster.hosts)
    assert refused(submit, cpus_per_gpu=33, memory_gib_per_gpu=129) == {
        "cpus_per_gpu": [
            f"No host of sig-elastic has 33 cores for one GPU: the largest, {name}, has 32 cores for trainings. Ask "
            "for at most 32."
        ],
        "memory_gib_per_gpu": [
            f"No host of sig-elastic has 129 GiB of memory for one GPU: the largest, {name}, has 128 GiB for "
            "trainings. Ask for at most 128 GiB."
        ],
    }
    assert submit(cpus_per_gpu=32, memory_gib_per_gpu=128).cpus_per_gpu == 32


@pytest.mark.usefixtures("shares")
def test_a_minimum_that_the_hosts_have_no_room_for_is_refused(submit: Submit, cluster: Cluster) -> None:
    most = len(cluster.hosts) * 2
    sentence = f"With 16 cores each, the hosts of sig-elastic have room for {most} GPUs at a time, not {most + 1}"
    found = refused(submit, cpus_per_gpu=16, min_slots=most + 1, max_slots=most + 1)
    assert found["cpus_per_gpu"][0].startswith(sentence)


@pytest.mark.parametrize("value", [0, -1, 4097, "many"])
def test_senseless_numbers_are_refused(submit: Submit, value: Any) -> None:
    [sentence] = refused(submit, cpus_per_gpu=value)["cpus_per_gpu"]
    assert sentence == "The number of cores per GPU must be a whole number from 1 to 4,096."


def test_nothing_is_refused_where_hosts_do_not_tell(submit: Submit, cluster: Cluster) -> None:
    job = submit(cpus_per_gpu=4096)
    cluster.turn(2)
    job = Job.objects.select_related("run").get(pk=job.pk)
    assert job.run.target_slots == 8


@pytest.mark.usefixtures("shares")
def test_the_scheduler_reads_shares_only_where_somebody_asks(submit: Submit, cluster: Cluster) -> None:
    submit()
    assert not snapshot(timezone.now()).shares
    job = submit(cpus_per_gpu=16, memory_gib_per_gpu=4)
    seen = snapshot(timezone.now())
    assert set(seen.shares.values()) == {Share(8.0, 32 * GIB)}
    assert next(view.wish for view in seen.jobs if view.id == job.pk) == Share(16, 4 * GIB)


@pytest.mark.usefixtures("shares")
def test_a_training_holds_its_gpus_and_others_the_rest(submit: Submit, cluster: Cluster) -> None:
    job = submit(min_slots=2, max_slots=2, cpus_per_gpu=16)
    other = submit(max_slots=8)
    cluster.turn(4)
    job, other = Job.objects.select_related("run").order_by("pk")
    assert (job.run.target_slots, other.run.target_slots) == (2, len(cluster.hosts) * 4 - 4)
    assert "Each of its 2 GPUs counts as 2, because it needs 16 cores with each" in text_of(job.reason_params)
    assert launch_spec(job).cpus_per_gpu == 16
    assert ("Cores per GPU", "16") in options_shown(job)
    actions.cancel(job.pk, "alice")
    assert SlotClaim.objects.open().filter(job=job).exists()
    seen = snapshot(timezone.now())
    assert seen.ending == {job.pk: Share(16, 0)}


@pytest.mark.usefixtures("shares")
def test_a_clone_asks_for_the_same_and_a_preview_tells_what_it_costs(
    submit: Submit, given: dict[str, Any], cluster: Cluster, alice: User
) -> None:
    running = submit(max_slots=len(cluster.hosts) * 4)
    cluster.turn(2)
    wanted = {**given, "min_slots": 2, "max_slots": 2, "memory_gib_per_gpu": 64}
    told = preview_submission(actions.Submission(**wanted), alice)
    assert told["target_slots"] == 2
    [change] = told["others"]
    assert change["slots"] - change["target_slots"] == 4
    assert "counts as 2" in told["reason"]["text"]
    again = actions.clone(submit(cpus_per_gpu=3), alice)
    assert Job.objects.get(pk=again.pk).cpus_per_gpu == 3
    assert running.cpus_per_gpu is None


def test_a_host_of_a_former_release_has_no_share(cluster: Cluster) -> None:
    assert {host.share for host in Host.objects.all()} == {None}
