"""Ranks of a fixed-size script that do not act as one: copies are told about, and those that stay are ended."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from jobs import actions
from jobs.control.checkpoints import is_resumable
from jobs.control.gangs import GangFacts, GangNotice, gang_notice, seen_in, watch_gangs
from jobs.models import Job, Rank
from jobs.states import JobState, Reason
from models_registry.models import RegisteredModelVersion
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit

FACTS = GangFacts(live=4, grouped=True, ended_at=(), started_at=0.0)
STAYS = replace(FACTS, live=3, ended_at=(100.0,))
COPIES = replace(FACTS, grouped=False)


@pytest.mark.parametrize(
    ("facts", "now", "seen"),
    [
        (FACTS, 9999.0, None),
        (STAYS, 105.0, None),
        (STAYS, 110.0, "ranks_stay"),
        (replace(STAYS, ended_at=(100.0, 650.0)), 699.0, "ranks_stay"),
        (STAYS, 700.0, "ranks_overdue"),
        (replace(STAYS, live=0), 700.0, None),
        (replace(STAYS, may_stay_until=900.0), 899.0, "ranks_stay"),
        (replace(STAYS, may_stay_until=900.0), 900.0, "ranks_overdue"),
        (replace(STAYS, may_stay_until=200.0), 699.0, "ranks_stay"),
        (COPIES, 59.0, None),
        (COPIES, 60.0, "copies"),
        (replace(COPIES, live=1, ended_at=(100.0,)), 9999.0, "copies"),
    ],
)
def test_what_is_seen_of_a_gang(facts: GangFacts, now: float, seen: str | None) -> None:
    assert seen_in(facts, now, 600.0) == seen


def fresh(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


@pytest.fixture
def job(cluster: Cluster, submit: Submit, code: RegisteredModelVersion) -> Job:
    """Four processes that train."""
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine="fixed")
    job = submit(max_slots=4)
    cluster.turn()
    cluster.train(job, plain=True)
    assert fresh(job).state == JobState.RUNNING
    return fresh(job)


def group(job: Job) -> None:
    Rank.objects.filter(job=job).update(grouped=True)


def end_one(cluster: Cluster, job: Job) -> None:
    rank = cluster.ranks(job)[0]
    host = cluster.hosts[rank.member_id.split(".")[0]]
    host.end(rank.slot, code=0)
    host.send()


def told(job: Job) -> list[str]:
    return [event.detail["message"] for event in job.events.filter(reason=Reason.NO_PROGRESS).order_by("seq")]


def later(**span: float) -> None:
    """Look at the gangs by a clock that is so far ahead, twice: what is told, is told once."""
    now = timezone.now() + timedelta(hours=2, **span)  # the cluster's clock runs ahead
    for _ in range(2):
        watch_gangs(now)


def test_ranks_that_stay_are_told_about_and_ended(cluster: Cluster, job: Job) -> None:
    group(job)
    end_one(cluster, job)
    [ended] = Rank.objects.filter(job=job, state="EXITED")
    at = datetime.fromtimestamp(ended.exit["at"], UTC)
    watch_gangs(at + timedelta(seconds=5))
    assert told(job) == []
    for seconds in (30, 60):
        watch_gangs(at + timedelta(seconds=seconds))
    assert (told(job), fresh(job).state) == (["ranks_stay"], JobState.RUNNING)
    shown = job.events.get(detail__message="ranks_stay")
    assert (shown.detail["ended"], shown.detail["live"]) == (1, 3)
    assert gang_notice(fresh(job)).text == shown.text
    watch_gangs(at + timedelta(seconds=601))
    assert (told(job), fresh(job).state) == (["ranks_stay", "ranks_overdue"], JobState.FAILED)
    assert fresh(job).run.error["kind"] == "RanksStayed"
    assert gang_notice(fresh(job)) == GangNotice()
    cluster.settle()
    assert cluster.ranks(job) == []


def test_the_owner_lets_ranks_that_stay_go_on(cluster: Cluster, job: Job, alice_client: Client) -> None:
    address, page = f"/api/v1/jobs/{job.pk}/wait/", f"/jobs/{job.pk}/"
    group(job)
    refused = alice_client.post(address, {"minutes": 60}, content_type="application/json")
    assert (refused.status_code, refused.json()["code"]) == (409, "stale_job"), "nobody stays"
    end_one(cluster, job)
    [ended] = Rank.objects.filter(job=job, state="EXITED")
    at = datetime.fromtimestamp(ended.exit["at"], UTC)
    watch_gangs(at + timedelta(seconds=30))
    shown = alice_client.get(page).content
    assert b'data-opens="wait-dialog"' in shown
    assert b'id="wait-dialog"' in shown
    for minutes in (0, -1, 10_081, "x", None):
        assert alice_client.post(address, {"minutes": minutes}, content_type="application/json").status_code == 400

    before = timezone.now()
    assert alice_client.post(address, {"minutes": 600}, content_type="application/json").status_code == 200
    ends_at = gang_notice(fresh(job)).ends_at
    assert ends_at is not None
    assert timedelta(0) <= ends_at - before - timedelta(minutes=600) < timedelta(minutes=1)
    watch_gangs(ends_at - timedelta(seconds=1))
    assert fresh(job).state == JobState.RUNNING

    assert alice_client.post(f"{page}wait/", {"minutes": "10080"}).status_code == 302
    last = gang_notice(fresh(job)).ends_at
    assert last is not None
    assert alice_client.post(f"{page}wait/", {"minutes": "10"}).status_code == 302
    assert gang_notice(fresh(job)).ends_at == last, "it is put off, never brought forward"
    watch_gangs(last)
    assert fresh(job).state == JobState.FAILED
    over = alice_client.post(address, {"minutes": 60}, content_type="application/json")
    assert (over.status_code, over.json()["code"]) == (409, "stale_job")


def test_copies_are_told_about_and_live(cluster: Cluster, job: Job, alice_client: Client) -> None:
    end_one(cluster, job)
    later()
    assert (told(job), fresh(job).state) == (["copies"], JobState.RUNNING)
    notice = gang_notice(fresh(job)).text
    assert "4 copies of the script, each of which does all the work, and 1 of them has ended with exit code 0" in notice
    assert notice in alice_client.get(f"/jobs/{job.pk}/").content.decode()
    assert notice in alice_client.get(f"/jobs/{job.pk}/notice/").content.decode()


def test_a_group_that_is_whole_is_left_alone(cluster: Cluster, job: Job, alice_client: Client) -> None:
    group(job)
    later()
    assert (told(job), fresh(job).state, gang_notice(fresh(job)).text) == ([], JobState.RUNNING, "")


def test_nothing_is_promised_where_nothing_was_saved(cluster: Cluster, job: Job) -> None:
    """A script may exit with 0 on SIGTERM and know nothing of CHECKPOINT_DIR, as Lightning does."""
    for host in cluster.hosts.values():
        host.saves_when_stopped = True
    actions.suspend(job.pk, "alice")
    cluster.settle()
    assert fresh(job).state == JobState.SUSPENDED
    assert not is_resumable(fresh(job))
    held = fresh(job).reason_params
    assert (held["message"], held["resumable"]) == ("gang_held_back", False)
