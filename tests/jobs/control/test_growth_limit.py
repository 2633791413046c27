"""Trainings whose new ranks fail again and again: they keep their size, and return the GPUs."""

import pytest
from tidepool import protocol

from jobs import actions
from jobs.messages import text_of
from jobs.models import Job
from jobs.states import JobState, Reason
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from tests.jobs.control.test_life import ERROR, fresh, open_slots, running

pytestmark = pytest.mark.django_db


@pytest.fixture
def limited(cluster: Cluster, submit: Submit) -> Job:
    """A job of which three ranks on gpu-host-1 train, and in whose fourth slot there two newcomers have failed."""
    job = running(cluster, submit())
    train = job.generations.get(number=1).members[:3]
    given_up = {"members": train, "code": 1, "signal": None, "error": ERROR, "step": 9, "generation": 3}
    place = {"member_id": "gpu-host-1.3.3", "host": "gpu-host-1", "slot": 3, "by_script": True, "newcomer": True}
    cluster.hosts[job.run.lead_host].write(job, "coordinator", "growth_given_up", **place, **given_up)
    cluster.report()
    return fresh(job)


def test_a_job_keeps_its_size_and_returns_the_others(cluster: Cluster, limited: Job) -> None:
    assert (limited.state, limited.run.target_slots, limited.reason_code) == (
        JobState.RUNNING, 3, Reason.GROWTH_GIVEN_UP
    )  # fmt: skip
    assert "Two new processes on gpu-host-1 failed in the same way" in text_of(limited.reason_params)
    cluster.train(limited, step=12)
    cluster.settle()
    assert open_slots(limited) == 3
    cluster.turn()
    after = fresh(limited)
    assert (after.run.target_slots, open_slots(after)) == (3, 3)
    assert "keeps 3 GPUs" in text_of(after.reason_params)


def test_another_maximum_is_tried(cluster: Cluster, limited: Job) -> None:
    cluster.settle()
    actions.change_job(limited.pk, actions.JobChange(max_slots=6), "alice")
    cluster.cycle()
    after = fresh(limited)
    assert (after.run.growth_limit, after.run.target_slots) == (None, 6)


def test_the_next_attempt_is_tried_at_full_size(cluster: Cluster, limited: Job) -> None:
    cluster.settle()
    actions.suspend(limited.pk, "alice")
    for host in cluster.hosts.values():
        for rank in list(host.ranks.values()):
            host.end(rank.slot, code=0)
    cluster.settle()
    actions.resume(limited.pk, "alice")
    cluster.turn()
    after = fresh(limited)
    assert (after.run.growth_limit, after.run.target_slots) == (None, 8)


def test_a_full_gpu_is_told_once_for_each_rank(cluster: Cluster, submit: Submit) -> None:
    job = running(cluster, submit())
    host = cluster.hosts[job.run.lead_host]
    full = f"{protocol.GPU_IS_FULL}: a communicator takes up to 0.7 GB"
    for generation, why in enumerate([f"a.1.2: {full}", f"a.1.2: {full}", f"a.2.3: {full}", "a member died"], 2):
        host.write(job, "coordinator", "generation_abandoned", generation=generation, why=why)
    cluster.report()
    told = job.events.filter(reason=Reason.OUT_OF_MEMORY)
    assert [text_of(event.detail).split(":")[0].split(". ")[1] for event in told] == ["Rank a.1.2", "Rank a.2.3"]
    assert fresh(job).state == JobState.RUNNING
