"""Silence: what is offered to nobody, and when jobs start again elsewhere."""

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from jobs.control.dispatch import build_sync
from jobs.control.hosts import reap_lost_hosts
from jobs.control.snapshots import snapshot
from jobs.control.transition import lock_job
from jobs.models import InstanceGroup, Job, Rank, SlotClaim
from jobs.states import JobState, RankState, Reason
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.models import Host

pytestmark = pytest.mark.django_db

LEASE = timedelta(seconds=30)


def hear(now: datetime, *names: str) -> None:
    Host.objects.filter(name__in=names).update(last_report_at=now)


def state_of(name: str) -> str:
    return Host.objects.get(name=name).state


@pytest.fixture
def now(cluster: Cluster) -> datetime:
    now = timezone.now()
    hear(now, *cluster.hosts)
    return now


def job_on(cluster: Cluster, submit: Submit, slots: int) -> Job:
    job = submit(max_slots=slots)
    cluster.turn()
    cluster.train(job)
    return Job.objects.select_related("run").get(pk=job.pk)


def test_a_silent_host_offers_nothing(cluster: Cluster, group: InstanceGroup, now: datetime) -> None:
    later = now + LEASE + timedelta(seconds=1)
    hear(later, "gpu-host-2")
    reap_lost_hosts(now, later)
    assert (state_of("gpu-host-1"), state_of("gpu-host-2")) == ("LOST", "ONLINE")
    assert {slot.ref.host for slot in snapshot(later).slots if slot.claimable} == {"gpu-host-2"}


def test_a_host_that_reports_in_time_stays(cluster: Cluster, now: datetime) -> None:
    reap_lost_hosts(now, now + LEASE - timedelta(seconds=1))
    assert state_of("gpu-host-1") == "ONLINE"


def test_its_jobs_start_again_elsewhere_after_twice_the_lease(cluster: Cluster, submit: Submit) -> None:
    job = job_on(cluster, submit, 4)
    now = timezone.now()
    hear(now, *cluster.hosts)
    hear(now + LEASE * 2, "gpu-host-2")
    well_since = reap_lost_hosts(now, now + LEASE * 2 - timedelta(seconds=1))
    assert Job.objects.get(pk=job.pk).state == JobState.RUNNING
    reap_lost_hosts(well_since, now + LEASE * 2)
    row = Job.objects.get(pk=job.pk)
    assert (row.state, row.reason_code, row.run.slots) == (JobState.PENDING, Reason.HOST_LOST, 0)
    assert set(Rank.objects.filter(job=job).values_list("state", flat=True)) == {RankState.LOST}
    cluster.cycle()
    row = Job.objects.get(pk=job.pk)
    assert (row.state, row.run.attempt, row.run.lead_host) == (JobState.STARTING, 2, "gpu-host-2")


def test_a_host_that_is_heard_meanwhile_keeps_its_jobs(
    cluster: Cluster, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, now = job_on(cluster, submit, 4), timezone.now()
    hear(now, *cluster.hosts)
    hear(now + LEASE * 2, "gpu-host-2")

    def late(job_id: int) -> Job:
        hear(now + LEASE * 2, "gpu-host-1")
        return lock_job(job_id)

    monkeypatch.setattr("jobs.control.hosts.lock_job", late)
    reap_lost_hosts(now, now + LEASE * 2)
    job.refresh_from_db()
    assert (job.state, SlotClaim.objects.open().filter(job=job).count()) == (JobState.RUNNING, 4)


def test_the_lease_counts_only_while_the_control_plane_was_well(cluster: Cluster, submit: Submit) -> None:
    job = job_on(cluster, submit, 4)
    now = timezone.now()
    hear(now, *cluster.hosts)
    back = now + LEASE * 20
    hear(back, "gpu-host-2")
    well_since = reap_lost_hosts(None, back)
    assert well_since == back
    assert Job.objects.get(pk=job.pk).state == JobState.RUNNING


def test_if_all_are_silent_nothing_is_taken_away(cluster: Cluster, submit: Submit) -> None:
    job = job_on(cluster, submit, 8)
    later = timezone.now() + LEASE * 20
    assert reap_lost_hosts(timezone.now(), later) is None
    assert state_of("gpu-host-1") == "LOST"
    assert Job.objects.get(pk=job.pk).state == JobState.RUNNING
    assert SlotClaim.objects.filter(job=job, released_at__isnull=True).count() == 8


def test_a_job_with_ranks_elsewhere_goes_on_with_them(cluster: Cluster, submit: Submit) -> None:
    job = job_on(cluster, submit, 8)
    now = timezone.now()
    hear(now, *cluster.hosts)
    hear(now + LEASE * 2, "gpu-host-2")
    reap_lost_hosts(now, now + LEASE * 2)
    row = Job.objects.get(pk=job.pk)
    assert (row.state, row.run.attempt, row.run.target_slots, row.run.lead_host) == (
        JobState.RUNNING,
        1,
        4,
        "gpu-host-2",
    )
    assert row.run.target_revision == job.run.target_revision + 1
    assert row.run.lead_number == job.run.lead_number + 1, "the former lead is fenced"


def test_the_number_of_the_lead_is_raised_when_it_moves_and_with_each_attempt(cluster: Cluster, submit: Submit) -> None:
    job = job_on(cluster, submit, 8)
    assert job.run.lead_number == 1
    now = timezone.now()
    hear(now, *cluster.hosts)
    later = now + LEASE + timedelta(seconds=1)
    hear(later, "gpu-host-2")
    reap_lost_hosts(now, later)
    row = Job.objects.get(pk=job.pk).run
    assert (row.lead_host, row.lead_number) == ("gpu-host-2", 2)
    told = job.events.order_by("-seq")[0]
    assert (told.detail["message"], told.detail["host"], told.detail["lead"]) == (
        "lead_moved",
        "gpu-host-1",
        "gpu-host-2",
    )
    for host, leads in (("gpu-host-1", False), ("gpu-host-2", True)):
        [desired] = build_sync(host).jobs
        assert (desired.lead, desired.lead_number) == (leads, 2)


def test_silence_shorter_than_twice_the_lease_moves_no_training(cluster: Cluster, submit: Submit) -> None:
    """Play an outage of the control plane, after which one host is heard again before the other."""
    job = job_on(cluster, submit, 6)
    other = submit(max_slots=1)
    cluster.turn()
    claims = SlotClaim.objects.filter(released_at__isnull=True, vacating_at__isnull=True)
    before = set(claims.values_list("job_id", "slot_id"))
    assert {job_id for job_id, _ in before} == {job.pk, other.pk}
    Host.objects.filter(name="gpu-host-2").update(state=Host.State.LOST)
    cluster.cycle()
    assert set(claims.values_list("job_id", "slot_id")) == before
    assert {slot.ref.host for slot in snapshot(timezone.now()).slots if slot.held_by is None and slot.claimable} <= {
        "gpu-host-1"
    }


def test_another_host_leads_after_the_lease(cluster: Cluster, submit: Submit) -> None:
    job = job_on(cluster, submit, 8)
    assert job.run.lead_host == "gpu-host-1"
    now = timezone.now()
    hear(now, *cluster.hosts)
    hear(now + LEASE * 2, "gpu-host-2")
    well_since = reap_lost_hosts(now, now + LEASE - timedelta(seconds=1))
    assert Job.objects.get(pk=job.pk).run.lead_host == "gpu-host-1"
    before = cluster.hosts["gpu-host-2"].pull().revision
    reap_lost_hosts(well_since, now + LEASE + timedelta(seconds=1))
    row = Job.objects.get(pk=job.pk)
    assert (row.run.lead_host, row.run.target_slots, row.run.target_revision) == (
        "gpu-host-2",
        8,
        job.run.target_revision,
    )
    desired = cluster.hosts["gpu-host-2"].pull()
    assert desired.revision > before
    assert desired.jobs[0].lead


def test_a_job_with_slots_on_the_silent_host_alone_keeps_its_lead(cluster: Cluster, submit: Submit) -> None:
    job = job_on(cluster, submit, 4)
    now = timezone.now()
    hear(now, *cluster.hosts)
    hear(now + LEASE * 2, "gpu-host-2")
    reap_lost_hosts(now, now + LEASE + timedelta(seconds=1))
    assert Job.objects.get(pk=job.pk).run.lead_host == "gpu-host-1"


def test_a_host_that_returns_offers_slots_once_it_has_let_go(cluster: Cluster, submit: Submit) -> None:
    job = job_on(cluster, submit, 4)
    now = timezone.now()
    hear(now, *cluster.hosts)
    hear(now + LEASE * 2, "gpu-host-2")
    reap_lost_hosts(now, now + LEASE * 2)

    host = cluster.hosts["gpu-host-1"]
    host.send()
    assert state_of("gpu-host-1") == "LOST", "its ranks of the former life are still there"
    host.pull()
    assert host.ranks == {}
    host.send()
    assert state_of("gpu-host-1") == "ONLINE"
    assert Job.objects.get(pk=job.pk).state == JobState.PENDING
