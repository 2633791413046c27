"""A training with a limit: its owner is told before, then it stops with a checkpoint and is held back."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from jobs import actions
from jobs.control.snapshots import snapshot
from jobs.control.time_limits import enforce_limits
from jobs.models import Job, SlotClaim
from jobs.states import JobState, Reason
from models_registry.models import RegisteredModelVersion
from tests.html import html_of
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit

LIMIT = 1000


def fresh(job: Job) -> Job:
    return Job.objects.select_related("run").get(pk=job.pk)


@pytest.fixture
def job(cluster: Cluster, submit: Submit) -> Job:
    job = submit(max_slots=4, max_seconds=LIMIT)
    cluster.turn()
    cluster.train(job)
    return fresh(job)


def told(job: Job) -> list[str]:
    return [event.detail["message"] for event in job.events.filter(reason=Reason.TIME_LIMIT).order_by("seq")]


def at(job: Job, seconds_left: float) -> None:
    ends_at = job.run.ends_at
    assert ends_at is not None
    enforce_limits(ends_at - timedelta(seconds=seconds_left))


def test_the_limit_counts_from_the_start(job: Job) -> None:
    assert job.run.ends_at is not None
    assert job.started_at is not None
    assert job.run.ends_at - job.started_at == timedelta(seconds=LIMIT)
    [view] = snapshot(job.started_at).jobs
    assert (view.lasts, view.ends_at) == (LIMIT, job.run.ends_at.timestamp())


def test_its_owner_is_told_once_before(job: Job, alice_client: Client) -> None:
    at(job, 101)
    assert told(job) == []
    page = f"/jobs/{job.pk}/notice/"
    assert " hidden>" in html_of(alice_client.get(page))
    at(job, 100)
    at(job, 50)
    assert (told(job), fresh(job).state) == (["limit_near"], JobState.RUNNING)
    shown = html_of(alice_client.get(page))
    assert " hidden>" not in shown
    assert f"time limit of {LIMIT} s (" in shown


def test_it_stops_with_a_checkpoint_and_goes_on_for_as_long_again(
    cluster: Cluster, job: Job, alice_client: Client
) -> None:
    at(job, 0)
    stopping = fresh(job)
    assert (stopping.state, stopping.reason_code) == (JobState.PREEMPTING, Reason.TIME_LIMIT)
    assert stopping.run.halt_until is not None, "it stops by itself, after a step"
    cluster.settle()
    held_back = fresh(job)
    assert (held_back.state, held_back.reason_code) == (JobState.SUSPENDED, Reason.TIME_LIMIT)
    assert held_back.reason_params["message"] == "limit_held_back"
    assert held_back.run.ends_at is None
    assert job.events.filter(reason=Reason.HALTED).exists()

    assert alice_client.post(f"/api/v1/jobs/{job.pk}/resume/").status_code == 200
    cluster.turn()
    again = fresh(job)
    assert (again.state, again.run.attempt, again.run.warned) == (JobState.STARTING, 2, False)
    assert again.run.ends_at is not None
    assert job.run.ends_at is not None
    assert again.run.ends_at > job.run.ends_at
    said = alice_client.get(f"/api/v1/jobs/{job.pk}/").json()
    assert (said["max_seconds"], bool(said["ends_at"])) == (LIMIT, True)


@pytest.mark.parametrize("saves", [True, False])
def test_a_plain_script_gets_its_grace(
    cluster: Cluster, submit: Submit, code: RegisteredModelVersion, *, saves: bool
) -> None:
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine="fixed")
    job = submit(max_slots=4, max_seconds=LIMIT)
    cluster.turn()
    cluster.train(job, plain=True)
    for host in cluster.hosts.values():
        host.saves_when_stopped = saves
    at(fresh(job), 0)
    assert fresh(job).reason_params["grace"] == job.instance_group.reclaim_grace_seconds
    cluster.settle()
    held_back = fresh(job)
    assert (held_back.state, held_back.reason_params["message"]) == (JobState.SUSPENDED, "gang_limit_held_back")
    assert held_back.reason_params["resumable"] is False, "its CHECKPOINT_DIR is empty"


def test_who_is_held_back_by_its_owner_meanwhile_says_so(cluster: Cluster, job: Job) -> None:
    at(job, 0)
    actions.suspend(job.pk, "alice")
    cluster.settle()
    assert fresh(job).reason_code == Reason.SUSPENDED_BY_USER


def test_without_limit_nothing_ends(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=4)
    cluster.turn()
    cluster.train(job)
    assert fresh(job).run.ends_at is None


def test_its_owner_changes_it_while_it_runs(job: Job, alice_client: Client) -> None:
    at(job, 50)
    started, path = job.started_at, f"/api/v1/jobs/{job.pk}/"
    assert started is not None

    def patch(limit: int | None) -> Job:
        given = {"max_seconds": limit}
        assert alice_client.post(path + "preview/", given, content_type="application/json").status_code == 200
        assert alice_client.patch(path, given, content_type="application/json").status_code == 200
        return fresh(job)

    longer = patch(2 * LIMIT)
    assert longer.run.ends_at is not None
    assert (round((longer.run.ends_at - started).total_seconds()), longer.run.warned) == (2 * LIMIT, False)
    at(job, 0)
    assert fresh(job).state == JobState.RUNNING
    assert (patch(None).max_seconds, fresh(job).run.ends_at) == (None, None)

    events = list(job.events.filter(detail__field="max_seconds").order_by("seq"))
    assert [event.text for event in events] == [
        "alice changed the time limit from 1000 s to 2000 s.",
        "alice changed the time limit from 2000 s to none.",
    ]
    actions.undo_changes(job.pk, [events[-1].seq], "alice")
    assert (fresh(job).max_seconds, fresh(job).run.ends_at) == (2 * LIMIT, longer.run.ends_at)


def test_a_preview_says_that_it_has_held_gpus_for_longer(job: Job, alice_client: Client) -> None:
    SlotClaim.objects.filter(job=job).update(claimed_at=timezone.now() - timedelta(hours=1))
    path = f"/api/v1/jobs/{job.pk}/preview/"
    for limit, is_over in ((60, True), (7200, False)):
        seen = alice_client.post(path, {"max_seconds": limit}, content_type="application/json").json()
        assert ("The training is suspended at once" in seen["end_text"]) == is_over


def test_a_limit_that_is_too_short_is_refused(job: Job, alice_client: Client) -> None:
    answer = alice_client.patch(f"/api/v1/jobs/{job.pk}/", {"max_seconds": 5}, content_type="application/json")
    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["max_seconds"])
    assert fresh(job).max_seconds == LIMIT


def test_one_that_waits_has_its_new_limit_from_its_start_on(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=4)
    actions.change_job(job.pk, actions.JobChange(max_seconds=LIMIT), "alice")
    assert fresh(job).run.ends_at is None
    cluster.turn()
    assert fresh(job).run.ends_at is not None
