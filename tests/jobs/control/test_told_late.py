"""Reports that overtake the metrics of completed steps: on a busy machine metrics come last."""

import pytest

from jobs import actions
from jobs.control.dispatch import build_sync
from jobs.states import JobState
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from tests.jobs.control.test_life import fail_everywhere, fresh, running

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("stored", [2, 5], ids=["late", "in time"])
def test_the_same_end_at_the_same_step_is_the_same_however_late_its_steps_are_stored(
    cluster: Cluster, submit: Submit, stored: int
) -> None:
    """`os._exit` and crashes leave the script no time to say how far it had come."""
    ended = {"kind": "Exit", "message": "the process ended with code 3", "traceback": ""}
    job = running(cluster, submit())
    cluster.log_step(job, stored)
    fail_everywhere(cluster, job, ended, step=5)
    assert fresh(job).run.failure["step"] == 5
    cluster.settle()
    job = running(cluster, fresh(job))
    cluster.log_step(job, 3)
    fail_everywhere(cluster, job, ended, step=5)
    over = fresh(job)
    assert (over.state, over.reason_params["attempts"], over.run.step) == (JobState.FAILED, 2, 5)
    cluster.log_step(job, 4)
    cluster.report()
    assert fresh(job).run.step == 5, "it does not run back while the rest is stored"


def test_a_loss_after_a_step_counts_as_progress_before_the_step_is_stored(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    for attempt in (1, 2, 3):
        cluster.turn()
        for rank in cluster.ranks(job):
            cluster.hosts[rank.member_id.split(".")[0]].end(rank.slot, signal=9, step=attempt)
        cluster.report()
        cluster.settle()
    assert (fresh(job).state, fresh(job).run.fruitless_starts) == (JobState.PENDING, 0)


def test_a_job_that_starts_is_asked_to_stop_by_itself_too(cluster: Cluster, submit: Submit) -> None:
    """The first steps of the training may not be stored yet."""
    job = submit()
    cluster.turn()
    assert fresh(job).state == JobState.STARTING
    actions.suspend(job.pk, "alice")

    assert build_sync(fresh(job).run.lead_host).jobs[0].halt
