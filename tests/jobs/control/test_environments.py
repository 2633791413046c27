"""Environments are asked of hosts before their slots are claimed; answers, failures, restarts and the end of use."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs.control.dispatch import build_sync
from jobs.control.environment_states import JobFacts, lacks_of
from jobs.control.environments import ask_for, forget_unused
from jobs.models import HostEnvironment, Job, RequiredEnvironment, SlotClaim
from jobs.states import JobState
from scheduling.plan import PlanReason
from tests.jobs.cluster import Cluster, FakeHost
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db
NEEDS: dict[str, Any] = {"requirements": "tidegym==1.0"}


@pytest.fixture
def host(cluster: Cluster) -> FakeHost:
    """The first of the cluster's hosts; all of them prepare environments."""
    for one in cluster.hosts.values():
        one.prepares = True
    cluster.report()
    return cluster.hosts["gpu-host-1"]


def state(job: Job) -> str:
    job.refresh_from_db()
    return str(job.state)


def test_a_training_starts_once_its_packages_are_there(cluster: Cluster, host: FakeHost, submit: Submit) -> None:
    job = submit(max_slots=1, **NEEDS)
    cluster.turn()
    assert state(job) == JobState.PENDING
    assert job.reason_code == PlanReason.PREPARING
    [wanted] = build_sync(host.name).environments
    assert (wanted.lines, wanted.is_kept) == (None, True), "the host has told that it builds"
    assert wanted.log.endswith(f"/{job.pk}/attempt-1/log/environment@{host.name}/stdout")
    cluster.turn()
    assert state(job) == JobState.PENDING
    host.answer("ready", digest="abc", size_bytes=5)
    cluster.turn()
    assert state(job) == JobState.STARTING
    again = submit(max_slots=1, **NEEDS)
    cluster.turn()
    assert state(again) == JobState.STARTING, "at once, the second time"
    [row] = HostEnvironment.objects.all()
    assert (row.state, row.digest, row.size_bytes) == ("ready", "abc", 5)


def test_a_training_grows_onto_a_host_once_that_is_prepared(cluster: Cluster, host: FakeHost, submit: Submit) -> None:
    job = submit(max_slots=8, **NEEDS)
    cluster.turn()
    host.answer("ready")
    cluster.turn()
    cluster.train(job)
    cluster.turn()
    held = {claim.slot.host.name for claim in SlotClaim.objects.open().filter(job=job)}
    assert held == {host.name}
    for other in cluster.hosts.values():
        other.answer("ready")
    cluster.turn(2)
    assert {claim.slot.host.name for claim in SlotClaim.objects.open().filter(job=job)} == set(cluster.hosts)


def test_a_training_whose_packages_cannot_be_had_anywhere_starts_to_fail_with_the_reason(
    cluster: Cluster, host: FakeHost, submit: Submit
) -> None:
    job = submit(max_slots=1, **NEEDS)
    for tried in cluster.hosts.values():
        cluster.turn()
        assert state(job) == JobState.PENDING
        tried.answer("failed", why="No solution found")
    cluster.turn()
    assert state(job) == JobState.STARTING, "no host is left to be tried"
    later = submit(max_slots=1, **NEEDS)
    cluster.turn()
    assert state(later) == JobState.PENDING, "a later training has it tried again"
    row = HostEnvironment.objects.get(host__name=host.name)
    assert (row.number, row.state, row.why) == (2, "building", "")


def test_a_host_that_has_forgotten_or_lost_it_is_asked_again(cluster: Cluster, host: FakeHost, submit: Submit) -> None:
    submit(max_slots=1, **NEEDS)
    cluster.turn()
    host.answer("ready")
    host.environments.clear()
    host.send(environments=None)
    host.send(environments=[], at=1.0)
    assert HostEnvironment.objects.get().state == "ready", "a report without states, or a late one, says nothing"
    host.send()
    assert HostEnvironment.objects.get().state == "asked"
    [wanted] = build_sync(host.name).environments
    assert (wanted.number, wanted.lines) == (2, "tidegym==1.0")
    host.pull()
    assert host.environments[wanted.key].number == 2


def test_a_host_that_restarts_before_it_has_told_is_asked_again(
    cluster: Cluster, host: FakeHost, submit: Submit
) -> None:
    submit(max_slots=1, **NEEDS)
    cluster.cycle()
    host.pull()
    host.environments.clear()
    host.send()
    row = HostEnvironment.objects.get()
    assert (row.state, row.number) == ("asked", 2)
    host.send()
    row.refresh_from_db()
    assert row.number == 2, "the new request is on its way"


def test_a_suspended_training_keeps_its_environment(cluster: Cluster, host: FakeHost, submit: Submit) -> None:
    job = submit(max_slots=1, **NEEDS)
    cluster.turn()
    long_ago = timezone.now() - timedelta(days=8)
    Job.objects.filter(pk=job.pk).update(submitted_at=long_ago, state=JobState.SUSPENDED)
    forget_unused()
    job.run.refresh_from_db()
    assert job.run.required is not None
    assert build_sync(host.name).environments[0].is_kept


def test_what_a_host_has_removed_and_nobody_keeps_is_not_asked_for_again(
    cluster: Cluster, host: FakeHost, submit: Submit
) -> None:
    job = submit(max_slots=1, **NEEDS)
    cluster.turn()
    host.answer("ready")
    Job.objects.filter(pk=job.pk).update(state=JobState.CANCELLED, finished_at=timezone.now())
    host.environments.clear()
    host.send()
    assert not HostEnvironment.objects.exists()
    assert not build_sync(host.name).environments


def test_a_running_training_has_no_build_tried_again(cluster: Cluster, host: FakeHost, submit: Submit) -> None:
    """A training that was submitted after the failure runs on another host by then."""
    submit(max_slots=8, **NEEDS)
    cluster.turn()
    host.answer("ready")
    for other in cluster.hosts.values():
        other.answer("failed", why="no")
    job = submit(max_slots=8, name="later", **NEEDS)
    Job.objects.filter(pk=job.pk).update(state=JobState.RUNNING)
    facts = JobFacts(job.pk, job.run.required_id, timezone.now(), waits=False)
    lack = lacks_of([facts])[job.pk]
    assert lack.unfit == lack.unprepared == set(cluster.hosts) - {host.name}
    waits = lacks_of([facts._replace(waits=True)])[job.pk]
    assert not waits.unfit
    ask_for({job.pk: lack.unprepared})
    assert set(HostEnvironment.objects.values_list("number", flat=True)) == {1}


def test_hosts_of_a_former_version_are_taken_to_be_prepared(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=1, **NEEDS)
    cluster.turn()
    assert state(job) == JobState.STARTING
    assert not HostEnvironment.objects.exists()


def test_what_no_training_has_used_for_a_week_is_taken_off_the_hosts(
    cluster: Cluster, host: FakeHost, submit: Submit
) -> None:
    job = submit(max_slots=1, **NEEDS)
    cluster.turn()
    Job.objects.filter(pk=job.pk).update(submitted_at=timezone.now() - timedelta(days=8))
    forget_unused()
    assert build_sync(host.name).environments, "the training waits for it"
    Job.objects.filter(pk=job.pk).update(state=JobState.CANCELLED, finished_at=timezone.now())
    RequiredEnvironment.objects.update(is_pinned=True)
    forget_unused()
    assert build_sync(host.name).environments
    RequiredEnvironment.objects.update(is_pinned=False)
    before = build_sync(host.name).revision
    forget_unused()
    sync = build_sync(host.name)
    assert not sync.environments
    assert sync.revision > before
    job.run.refresh_from_db()
    assert job.run.required is None
