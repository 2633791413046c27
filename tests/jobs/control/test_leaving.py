"""Tests of hosts that will be gone at a known moment, and of the trainings on them."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from core.errors import Conflict
from jobs.control.dispatch import build_sync
from jobs.control.leaving import leave_in_time
from jobs.models import Job
from jobs.states import JobState, Reason
from models_registry.models import RegisteredModelVersion
from tests.jobs.cluster import Cluster, FakeHost, moment
from tests.jobs.conftest import Submit
from workers.actions import drain_host, resume_host
from workers.models import Host


def notice(host: FakeHost, seconds: float, why: str = "AWS") -> None:
    at = moment()
    host.send(at=at, leaving_at=at + seconds, leaving_why=why)


def row(name: str = "gpu-host-1") -> Host:
    return Host.objects.get(name=name)


def fresh(job: Job) -> Job:
    return Job.objects.select_related("run").get(pk=job.pk)


def left(host: Host) -> float:
    assert host.leaving_at is not None
    return (host.leaving_at - timezone.now()).total_seconds()


@pytest.fixture
def first(cluster: Cluster) -> FakeHost:
    return cluster.hosts["gpu-host-1"]


def test_a_host_that_goes_soon_drains_with_its_moment(first: FakeHost) -> None:
    notice(first, 30)
    host = row()
    assert (host.state, host.leaving_why) == ("DRAINING", "AWS")
    assert 20 < left(host) <= 30


def test_a_host_that_goes_later_stays_in_service_until_then(first: FakeHost) -> None:
    notice(first, 12 * 3600, "TIDEPOOL_LEAVING_AT")
    assert row().state == "ONLINE"
    notice(first, 119, "TIDEPOOL_LEAVING_AT")
    assert row().state == "DRAINING"


def test_a_moment_that_is_over_drains_the_host_at_once(first: FakeHost) -> None:
    notice(first, -600)
    assert row().state == "DRAINING"


def test_after_the_moment_trainings_still_leave_live_or_stop_with_a_checkpoint(
    cluster: Cluster, submit: Submit, first: FakeHost
) -> None:
    job = submit(max_slots=8, min_slots=8)
    cluster.turn(2)
    cluster.train(job)
    notice(first, -600)
    leave_in_time(timezone.now())
    assert fresh(job).state == JobState.RUNNING, "it may leave live"
    leave_in_time(timezone.now() + timedelta(seconds=11))
    stopped = fresh(job)
    assert (stopped.state, stopped.reason_params["seconds"]) == (JobState.PREEMPTING, 60)
    assert stopped.run.halt_until is not None


def test_a_notice_of_some_seconds_leaves_time_to_leave_live(cluster: Cluster, submit: Submit, first: FakeHost) -> None:
    job = submit(max_slots=8, min_slots=8)
    cluster.turn(2)
    cluster.train(job)
    notice(first, 8)
    leave_in_time(timezone.now() + timedelta(seconds=2))
    assert fresh(job).state == JobState.RUNNING
    leave_in_time(timezone.now() + timedelta(seconds=4))
    assert fresh(job).state == JobState.PREEMPTING


def test_a_notice_that_is_withdrawn_returns_the_host(first: FakeHost) -> None:
    notice(first, 30)
    first.send()
    host = row()
    assert (host.state, host.leaving_at, host.drains_for_notice_since) == ("ONLINE", None, None)


def test_an_administrators_drain_outlasts_a_notice(first: FakeHost) -> None:
    drain_host("gpu-host-1", "carol")
    notice(first, 30)
    first.send()
    assert row().state == "DRAINING"


def test_a_host_that_goes_cannot_be_resumed(first: FakeHost) -> None:
    notice(first, 30)
    with pytest.raises(Conflict, match="The machine of gpu-host-1 will be gone soon"):
        resume_host("gpu-host-1", "carol")


def test_the_moment_is_not_written_anew_with_each_report(first: FakeHost) -> None:
    notice(first, 30)
    before = row().leaving_at
    notice(first, 29.9)
    assert row().leaving_at == before
    notice(first, 60)
    assert row().leaving_at != before


def test_an_elastic_training_leaves_live(cluster: Cluster, submit: Submit, first: FakeHost) -> None:
    job = submit(max_slots=8)
    cluster.turn(2)
    cluster.train(job)
    notice(first, 30)
    cluster.cycle()
    leave_in_time(timezone.now())
    cluster.pull()
    cluster.train(job, 2)
    notice(first, 29)
    after = fresh(job)
    assert (after.state, after.run.attempt, after.run.target_slots) == (JobState.RUNNING, 1, 4)
    leave_in_time(timezone.now() + timedelta(seconds=29))
    assert fresh(job).state == JobState.RUNNING


def test_one_that_fits_nowhere_else_stops_with_a_checkpoint_at_half_time(
    cluster: Cluster, submit: Submit, first: FakeHost
) -> None:
    job = submit(max_slots=8, min_slots=8)
    cluster.turn(2)
    cluster.train(job)
    notice(first, 30)
    cluster.cycle()
    leave_in_time(timezone.now())
    assert fresh(job).state == JobState.RUNNING
    leave_in_time(timezone.now() + timedelta(seconds=16))
    stopped = fresh(job)
    assert (stopped.state, stopped.reason_code) == (JobState.PREEMPTING, Reason.HOST_LEAVES)
    assert stopped.run.halt_until is not None
    assert stopped.run.halt_until < row().leaving_at
    assert stopped.reason_params["message"] == "host_leaves"


@pytest.fixture
def fixed(cluster: Cluster, submit: Submit, code: RegisteredModelVersion) -> Job:
    """A fixed-size training on the first host, whose script saves when it is stopped."""
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine=RegisteredModelVersion.Engine.FIXED)
    job = submit(max_slots=4, min_slots=4)
    cluster.turn(2)
    cluster.train(job, plain=True)
    return fresh(job)


def grace(host: str) -> float:
    [desired] = build_sync(host).jobs
    return desired.grace_seconds


def test_a_fixed_training_has_all_that_is_left_to_save(cluster: Cluster, fixed: Job) -> None:
    host = cluster.hosts[fixed.run.lead_host]
    assert grace(host.name) == 10
    notice(host, 30)
    leave_in_time(timezone.now())
    stopped = fresh(fixed)
    assert (stopped.state, stopped.reason_code) == (JobState.PREEMPTING, Reason.HOST_LEAVES)
    assert 20 <= grace(host.name) <= 27
    host.saves_when_stopped = True
    host.pull()
    notice(host, 25)
    cluster.turn(2)
    moved = fresh(fixed)
    assert (moved.state, moved.run.attempt) == (JobState.STARTING, 2)
    assert moved.run.lead_host != host.name


def test_a_fixed_training_that_ends_before_finishes_there(
    cluster: Cluster, fixed: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: dict[str, datetime] = {}

    def ends_before(job: Any, until: datetime, now: datetime) -> bool:
        return ends["at"] <= until

    monkeypatch.setattr("jobs.control.leaving._ends_before", ends_before)
    notice(cluster.hosts[fixed.run.lead_host], 60)
    ends["at"] = timezone.now() + timedelta(seconds=20)
    leave_in_time(timezone.now())
    assert fresh(fixed).state == JobState.RUNNING
    ends["at"] = timezone.now() + timedelta(seconds=90)
    leave_in_time(timezone.now())
    assert fresh(fixed).state == JobState.PREEMPTING
