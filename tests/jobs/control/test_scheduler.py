"""The loop: who leads, what it reads, and that it survives."""

import threading
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from jobs.control import plans
from jobs.control.plans import Leadership
from jobs.control.snapshots import snapshot
from jobs.management.commands import run_scheduler
from jobs.management.commands.run_scheduler import Scheduler
from jobs.models import AllocationPoint, Job, JobRun, SchedulerLease
from jobs.states import JobState
from scheduling.preparation import PreparedCycle, run_prepared_cycle
from scheduling.schedule import schedule
from scheduling.snapshot import Snapshot
from tests.factories import ResourceGroupFactory
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from tests.waiting import wait_until
from workers.models import ResourceGroup

pytestmark = pytest.mark.django_db


def test_one_leads_and_the_other_stands_by(db: None) -> None:
    first, second = Leadership("a"), Leadership("b")
    assert first.renew() == 1
    assert second.renew() is None
    assert first.renew() == 1


def test_an_expired_lease_is_taken_over_with_a_new_epoch(db: None) -> None:
    first, second = Leadership("a"), Leadership("b")
    first.renew()
    SchedulerLease.objects.update(expires_at=Now())
    assert second.renew() == 2
    assert first.renew() is None
    assert SchedulerLease.objects.get().holder == "b"


def test_an_expired_lease_that_nobody_took_goes_on(db: None) -> None:
    leader = Leadership("a")
    leader.renew()
    SchedulerLease.objects.update(expires_at=Now())
    assert leader.renew() == 1


def test_who_resigns_is_followed_at_once(db: None) -> None:
    first, second = Leadership("a"), Leadership("b")
    first.renew()
    first.resign()
    assert second.renew() == 2


def test_a_snapshot_takes_the_same_queries_for_any_number(
    cluster: Cluster, submit: Submit, django_assert_num_queries: Any
) -> None:
    submit()
    with django_assert_num_queries(7):
        snapshot(timezone.now())
    for number in range(5):
        submit(name=f"T{number}", max_slots=1)
    cluster.cycle()
    with django_assert_num_queries(7):
        snapshot(timezone.now())


def test_a_snapshot_says_who_holds_what(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=2, min_slots=2)
    cluster.cycle()
    seen = snapshot(timezone.now(), cycle=3)
    assert [(slot.ref.host, slot.ref.index, slot.held_by) for slot in seen.slots[:3]] == [
        ("gpu-host-1", 0, job.pk),
        ("gpu-host-1", 1, job.pk),
        ("gpu-host-1", 2, None),
    ]
    [view] = seen.jobs
    assert (view.id, view.state, view.min_slots, view.max_slots, view.elastic) == (job.pk, "STARTING", 2, 2, True)
    assert msgspec.json.decode(msgspec.json.encode(seen), type=Snapshot) == seen


def test_service_slots_are_never_offered(cluster: Cluster, submit: Submit) -> None:
    ResourceGroupFactory(name="services", kind=ResourceGroup.Kind.SERVICE, slot_rule="ncpus*2")
    assert all("services" not in slot.resource_groups for slot in snapshot(timezone.now()).slots)


def test_a_job_whose_former_processes_still_end_is_not_scheduled(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    cluster.turn()
    for host in cluster.hosts.values():
        for slot in list(host.ranks):
            host.end(slot, signal=9)
    cluster.report()
    assert Job.objects.get(pk=job.pk).state == JobState.PENDING
    seen = snapshot(timezone.now())
    assert seen.jobs == ()
    assert all(slot.vacating for slot in seen.slots)


def test_a_turn_starts_a_job(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    SchedulerLease.objects.all().delete()
    Scheduler(threading.Event()).cycle()
    assert Job.objects.get(pk=job.pk).state == JobState.STARTING


def test_forecasts_say_who_is_over_in_time(cluster: Cluster, submit: Submit) -> None:
    """Half of it took 5 minutes: 1.25 times as long again is 7 whole minutes."""
    first = submit(min_slots=4, max_slots=4)
    cluster.turn()
    Job.objects.filter(pk=first.pk).update(state=JobState.RUNNING)
    JobRun.objects.filter(job=first).update(progress=0.5)
    AllocationPoint.objects.filter(job=first).delete()
    since = timezone.now() - timedelta(seconds=300)
    AllocationPoint.objects.create(job=first, at=since, slots=4, attempt=1, generation=1, reason_code="X")
    submit(name="all", min_slots=8, max_slots=8)
    short, long = (submit(name=f"{n} s", min_slots=1, max_slots=1, max_seconds=n) for n in (360, 3600))
    SchedulerLease.objects.all().delete()
    Scheduler(threading.Event()).cycle()
    assert Job.objects.get(pk=short.pk).reason_params["fills"] == "in_time"
    assert Job.objects.get(pk=long.pk).reason_params.get("fills") != "in_time"


def test_who_does_not_lead_decides_nothing(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    Leadership("another").renew()
    Scheduler(threading.Event()).cycle()
    assert Job.objects.get(pk=job.pk).state == JobState.PENDING


@pytest.mark.django_db(transaction=True)
def test_the_loop_goes_on_after_an_error_and_resigns_at_the_end(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()
    SchedulerLease.objects.all().delete()
    calls = []

    def broken(*args: object) -> None:
        calls.append(args)
        if len(calls) == 2:
            stop.set()
        raise RuntimeError("broken policy")

    monkeypatch.setattr(run_scheduler, "run_prepared_cycle", broken)
    monkeypatch.setattr(run_scheduler, "CYCLE_SECONDS", 0.01)
    Scheduler(stop).run()
    assert len(calls) == 2
    errors = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert errors == ["broken policy", "broken policy"]
    assert Leadership("next").renew() == 2


def lease_left() -> bool:
    return SchedulerLease.objects.filter(expires_at__gt=Now()).exists()


@pytest.mark.django_db(transaction=True)
def test_the_lead_is_kept_for_as_long_as_a_cycle_takes(
    cluster: Cluster, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cycle goes on only once its lease, which has run out in the meantime, was renewed beside it."""
    job = submit()
    SchedulerLease.objects.all().delete()
    monkeypatch.setattr(plans, "RENEW_SECONDS", 0.01)
    rivals = []

    def slow(seen: Snapshot) -> PreparedCycle:
        SchedulerLease.objects.update(expires_at=Now())
        wait_until(lease_left, "the renewed lease", seconds=30)
        rivals.append(Leadership("rival").renew())
        return run_prepared_cycle(seen)

    monkeypatch.setattr(run_scheduler, "run_prepared_cycle", slow)
    Scheduler(threading.Event()).cycle()
    assert rivals == [None]
    assert Job.objects.get(pk=job.pk).state == JobState.STARTING


@pytest.mark.django_db(transaction=True)
def test_who_lost_the_lead_during_a_cycle_writes_nothing_and_renews_nothing(
    cluster: Cluster, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit()
    SchedulerLease.objects.all().delete()
    monkeypatch.setattr(plans, "RENEW_SECONDS", 0.01)

    def slow(seen: Snapshot) -> PreparedCycle:
        SchedulerLease.objects.update(epoch=F("epoch") + 1, holder="rival", expires_at=Now())
        wait_until(lambda: not renewing(), "the end of the renewals", seconds=30)
        return run_prepared_cycle(seen)

    monkeypatch.setattr(run_scheduler, "run_prepared_cycle", slow)
    Scheduler(threading.Event()).cycle()
    assert not lease_left()
    assert SchedulerLease.objects.get().holder == "rival"
    assert Job.objects.get(pk=job.pk).state == JobState.PENDING


def renewing() -> bool:
    return any(thread.name == "lease" for thread in threading.enumerate())


@pytest.mark.django_db(transaction=True)
def test_the_lease_is_renewed_beside_the_cycle_only() -> None:
    leader = Leadership("a")
    leader.renew()
    with leader.held():
        assert renewing()
    assert not renewing()


def test_a_plan_that_took_long_to_write_leaves_a_whole_lease(cluster: Cluster, submit: Submit) -> None:
    """Nobody else could renew it meanwhile: the row was locked."""
    submit()
    plan = schedule(snapshot(timezone.now()))
    epoch = Leadership("next").renew() or SchedulerLease.objects.get().epoch
    SchedulerLease.objects.update(expires_at=Now())
    assert plans.apply(plan, epoch)
    assert lease_left()


def test_without_trainings_it_plans_rarely_or_when_woken(
    cluster: Cluster, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans_made = list[float]()
    monkeypatch.setattr(run_scheduler, "snapshot", lambda *of: plans_made.append(clock[0]) or snapshot(*of))
    clock = [100.0]
    monkeypatch.setattr(run_scheduler.time, "monotonic", lambda: clock[0])
    scheduler = Scheduler(threading.Event())
    monkeypatch.setattr(scheduler, "_now_and_then", ())
    rest = int(run_scheduler.REST_SECONDS)
    for second in range(rest + 3):
        clock[0] = 100.0 + second
        scheduler.cycle()
    assert plans_made == [100.0, 100.0 + rest]
    assert SchedulerLease.objects.get().cycles == rest + 2, "counted with the next one's lease"
    submit()
    scheduler.cycle()
    assert plans_made == [100.0, 100.0 + rest, 102.0 + rest], "while a training waits, each cycle decides"
