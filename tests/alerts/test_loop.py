"""The process that decides and sends: from rows to one message, whatever happens in between."""

from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from alerts import actions
from alerts.alert_kinds import Kind
from alerts.loop import AlertLoop
from alerts.models import Alert, Channel, Delivery
from jobs.control.transition import Why, record, transition
from jobs.messages import message
from jobs.models import InstanceGroup, Job, JobRun, MetricPoint
from jobs.states import JobState, Reason
from scheduling.plan import PlanReason
from tests.alerts.receivers import Hook
from tests.factories import JobFactory, SlotClaimFactory, host_with_slots, set_job
from workers.lateness import note_mark
from workers.models import GpuReading

pytestmark = pytest.mark.django_db(transaction=True)
MINUTE = timedelta(minutes=1)


def running(owner: User, **values: Any) -> Job:
    return JobFactory(owner=owner, name="digits", state=JobState.RUNNING, started_at=timezone.now(), **values)


def fail(job: Job) -> None:
    why = Why(Reason.EXIT_NONZERO, message("submitted"), "executor")
    transition(job, JobState.FAILED, why, finished_at=timezone.now())


def titles(hook: Hook) -> list[str]:
    return [body["title"] for body in hook.bodies]


def test_a_failure_is_told_once(hook: Hook, channel: Channel, alice: User, bob: User, loop: AlertLoop) -> None:
    actions.add_rule(alice, channel.pk, Kind.FAILED)
    mine, others = running(alice), running(bob)
    for job in (mine, others):
        fail(job)
    now = timezone.now()
    for seconds in range(3):
        loop.turn(now + timedelta(seconds=seconds))
    # Another process that knows nothing of it but the rows.
    AlertLoop().turn(now + 2 * MINUTE)
    assert titles(hook) == [f"Training {mine.pk} (digits) failed"]
    [about] = hook.bodies[0]["alerts"]
    assert (about["kind"], about["job"]) == (Kind.FAILED, mine.pk)
    assert about["url"] == f"https://gpus.example.org/jobs/{mine.pk}/"
    assert Delivery.objects.get().state == "sent"


def test_a_receiver_that_is_down_gets_it_once_it_is_there(
    hook: Hook, channel: Channel, alice: User, loop: AlertLoop
) -> None:
    actions.add_rule(alice, channel.pk, Kind.FAILED)
    fail(running(alice))
    hook.answers = [503, 503, 200]
    now = timezone.now()
    for minutes in (0, 0.5, 1.1, 2, 3.2, 20):
        loop.turn(now + minutes * MINUTE)
    assert len(hook.requests) == 3
    assert len({headers["x-tidepool-delivery"] for _, headers, _ in hook.requests}) == 1
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.tries, delivery.problem) == ("sent", 3, "")


def test_after_five_tries_it_is_given_up(hook: Hook, channel: Channel, alice: User) -> None:
    actions.test_channel(alice, channel.pk)
    hook.answers = [500]
    now = timezone.now()
    for minutes in range(60):
        AlertLoop().turn(now + minutes * MINUTE)
    delivery = Delivery.objects.get()
    assert (len(hook.requests), delivery.state, delivery.tries) == (5, "failed", 5)
    assert delivery.problem == "The webhook answered 500 instead of 200."


def test_a_refused_address_is_given_up_at_once(hook: Hook, channel: Channel, alice: User, settings: Any) -> None:
    actions.test_channel(alice, channel.pk)
    settings.TIDEPOOL_ALERT_NETWORKS = []
    AlertLoop().turn(timezone.now())
    assert (hook.requests, Delivery.objects.get().state) == ([], "failed")


def test_a_channel_sealed_by_another_key_says_so(hook: Hook, channel: Channel, alice: User, settings: Any) -> None:
    actions.test_channel(alice, channel.pk)
    settings.SECRET_KEY = "another"
    AlertLoop().turn(timezone.now())
    assert (hook.requests, Delivery.objects.get().state) == ([], "failed")
    assert "another key" in Delivery.objects.get().problem


def test_addresses_and_secrets_are_no_plain_text_in_the_database(hook: Hook, alice: User) -> None:
    made = actions.add_channel(alice, "hook", "webhook", hook.url)
    row = Channel.objects.get()
    assert not {hook.url, made.secret} & {row.address, row.masked, row.secret}
    assert len(made.secret) > 40


def test_many_failures_come_as_a_digest(hook: Hook, channel: Channel, alice: User, loop: AlertLoop) -> None:
    actions.add_rule(alice, channel.pk, Kind.FAILED)
    now = timezone.now()
    for _ in range(7):
        fail(running(alice))
    loop.turn(now)
    assert titles(hook) == ["7 alerts"]
    assert len(hook.bodies[0]["alerts"]) == 7
    assert hook.bodies[0]["text"].count("(digits) failed") == 7


def test_in_quiet_hours_nothing_is_sent_but_tests(hook: Hook, channel: Channel, alice: User, loop: AlertLoop) -> None:
    actions.add_rule(alice, channel.pk, Kind.FAILED)
    actions.set_quiet_hours(alice, time(22), time(7), "UTC")
    fail(running(alice))
    night = datetime.combine(timezone.now().date() + timedelta(days=1), time(3), UTC)
    loop.turn(night)
    assert (titles(hook), Alert.objects.filter(delivery=None).count()) == ([], 1)
    actions.test_channel(alice, channel.pk)
    loop.turn(night + MINUTE)
    assert titles(hook) == ["A test of Tidepool's alerts"]
    loop.turn(night + timedelta(hours=5))
    assert len(titles(hook)) == 2


def test_what_a_deactivated_user_wanted_is_not_sent(hook: Hook, channel: Channel, alice: User, loop: AlertLoop) -> None:
    actions.add_rule(alice, channel.pk, Kind.FAILED)
    actions.test_channel(alice, channel.pk)
    User.objects.update(is_active=False)
    fail(running(alice))
    loop.turn(timezone.now())
    assert hook.requests == []


def test_gpus_that_are_taken(hook: Hook, channel: Channel, alice: User, loop: AlertLoop) -> None:
    actions.add_rule(alice, channel.pk, Kind.TAKEN)
    job = running(alice)
    record(job, Why(PlanReason.SHRUNK_FOR_FAIR_SHARE, message("submitted"), "scheduler"))
    loop.turn(timezone.now())
    assert titles(hook) == [f"GPUs were taken from training {job.pk} (digits)"]


def test_a_training_that_waits(hook: Hook, channel: Channel, alice: User, loop: AlertLoop) -> None:
    actions.add_rule(alice, channel.pk, Kind.WAITS, minutes=10)
    now = timezone.now()
    job = JobFactory(owner=alice, name="digits", submitted_at=now - timedelta(minutes=9))
    loop.turn(now)
    assert hook.requests == []
    for minutes in (2, 3, 4):
        loop.turn(now + minutes * MINUTE)
    assert titles(hook) == [f"Training {job.pk} (digits) has waited for 11 min 0 s"]


def test_idle_gpus(hook: Hook, channel: Channel, alice: User, loop: AlertLoop) -> None:
    """All of them, by a reading that is fresh."""
    actions.add_rule(alice, channel.pk, Kind.IDLE, minutes=10)
    job, now = running(alice), timezone.now()
    slots = list(host_with_slots("gpu-host-1", 2).slots.all())
    for slot in slots:
        SlotClaimFactory(slot=slot, job=job)
        GpuReading.objects.create(slot=slot, at=now, idle_since=now - timedelta(minutes=30))
    GpuReading.objects.filter(slot=slots[0]).update(idle_since=None)
    loop.turn(now)
    GpuReading.objects.filter(slot=slots[0]).update(idle_since=now - timedelta(minutes=9))
    loop.turn(now + MINUTE)
    assert len(hook.requests) == 1
    assert titles(hook) == [f"The GPUs of training {job.pk} (digits) have been idle for 10 min 0 s"]
    loop.turn(now + 10 * MINUTE)
    assert len(hook.requests) == 1, "the readings are old"


def test_a_training_that_makes_steps_is_not_idle(hook: Hook, channel: Channel, alice: User, loop: AlertLoop) -> None:
    """The utilization of a small model may be low, and a busy machine may leave it little time."""
    actions.add_rule(alice, channel.pk, Kind.IDLE, minutes=10)
    job, now = running(alice), timezone.now()
    [slot] = host_with_slots("gpu-host-1", 1).slots.all()
    SlotClaimFactory(slot=slot, job=job)
    GpuReading.objects.create(slot=slot, at=now, idle_since=now - timedelta(minutes=30))
    JobRun.objects.filter(job=job).update(stepped_at=now - timedelta(seconds=1))
    loop.turn(now)
    assert hook.requests == []
    JobRun.objects.filter(job=job).update(stepped_at=now - timedelta(minutes=11))
    loop.turn(now + MINUTE)
    assert titles(hook) == [f"The GPUs of training {job.pk} (digits) have been idle for 12 min 0 s"]


def test_no_gpu_is_idle_while_reports_wait(hook: Hook, channel: Channel, alice: User, loop: AlertLoop) -> None:
    actions.add_rule(alice, channel.pk, Kind.IDLE, minutes=10)
    job, now = running(alice), timezone.now()
    [slot] = host_with_slots("gpu-host-1", 1).slots.all()
    SlotClaimFactory(slot=slot, job=job)
    GpuReading.objects.create(slot=slot, at=now, idle_since=now - timedelta(minutes=30))
    note_mark(now - timedelta(seconds=40))
    loop.turn(now)
    assert not hook.requests
    note_mark(now + MINUTE)
    loop.turn(now + MINUTE)
    assert len(hook.requests) == 1


def test_a_loss_that_is_no_number(hook: Hook, channel: Channel, alice: User, loop: AlertLoop) -> None:
    actions.add_rule(alice, channel.pk, Kind.LOSS)
    job, now = running(alice, step=5, final_metrics={"loss": None}), timezone.now()
    points = [MetricPoint(job=job, name="loss", step=step, epoch=0, value=None, at=now) for step in range(5)]
    MetricPoint.objects.bulk_create(points)
    loop.turn(now)
    set_job(job, step=9)
    loop.turn(now + MINUTE)
    assert titles(hook) == [f"Look at the loss of training {job.pk} (digits)"]
    assert "has not been a number" in hook.bodies[0]["text"]


def test_a_quota_that_is_used_up_and_again(hook: Hook, channel: Channel, alice: User, loop: AlertLoop) -> None:
    job = running(alice)
    InstanceGroup.objects.update(quota=1)
    actions.add_rule(alice, channel.pk, Kind.QUOTA, job.instance_group_id)
    claim = SlotClaimFactory(job=job)
    now = timezone.now()
    loop.turn(now)
    AlertLoop().turn(now + MINUTE)
    assert len(hook.requests) == 1
    claim.released_at = now
    claim.save()
    loop.turn(now + 2 * MINUTE)
    SlotClaimFactory(job=job)
    loop.turn(now + 3 * MINUTE)
    assert titles(hook) == 2 * [f"Instance group {job.instance_group.name} uses all of its quota"]


def test_old_messages_are_forgotten(hook: Hook, channel: Channel, alice: User) -> None:
    actions.test_channel(alice, channel.pk)
    AlertLoop().turn(timezone.now() + timedelta(days=31))
    assert not Delivery.objects.exists()
