"""The alert loop runs in a process of its own only while it is needed, and a stopped loop loses nothing."""

import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from alerts import actions, outbox
from alerts.alert_kinds import Kind
from alerts.background import Alerts
from alerts.loop import AlertLoop
from alerts.models import Channel, Delivery
from core.claims import ClaimLost
from jobs.models import Job
from jobs.states import JobState
from tests.alerts.receivers import Hook, web_receiver
from tests.alerts.test_loop import fail
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def hook(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    settings.TIDEPOOL_ALERT_NETWORKS = ["127.0.0.0/8"]
    settings.TIDEPOOL_SITE_URL = "https://gpus.example.org"
    # The task sets it for its own process.
    monkeypatch.setenv("NO_PROXY", "")
    with web_receiver() as receiver:
        yield receiver


@pytest.fixture
def channel(hook: Hook, alice: User) -> Channel:
    return actions.add_channel(alice, "hook", "webhook", hook.url).row


def failed(owner: User) -> Job:
    job: Job = JobFactory(owner=owner, name="digits", state=JobState.RUNNING, started_at=timezone.now())
    fail(job)
    return job


def has_work(alerts: Alerts) -> bool:
    """Return what `has_work` says, as if the last look were long ago."""
    alerts._looking.last = float("-inf")
    return alerts.has_work()


@pytest.fixture
def alerts() -> Alerts:
    """A task that has pruned already, as it does when the worker starts."""
    made = Alerts()
    assert has_work(made)
    return made


def test_the_loop_runs_while_there_are_rules(alerts: Alerts, channel: Channel, alice: User) -> None:
    assert not has_work(alerts)
    rule = actions.add_rule(alice, channel.pk, Kind.FAILED)
    assert has_work(alerts)
    rule.delete()
    assert not has_work(alerts)


def test_the_first_rule_is_told_of_later_events_only(alerts: Alerts, channel: Channel, hook: Hook, alice: User) -> None:
    failed(alice)
    assert not has_work(alerts)
    actions.add_rule(alice, channel.pk, Kind.FAILED)
    later = failed(alice)
    AlertLoop().turn(timezone.now())
    assert [body["title"] for body in hook.bodies] == [f"Training {later.pk} (digits) failed"]


def test_without_rules_the_loop_sends_what_waits_and_ends(
    alerts: Alerts, channel: Channel, hook: Hook, alice: User
) -> None:
    actions.test_channel(alice, channel.pk)
    assert has_work(alerts)
    alerts.run(threading.Event())
    assert [body["title"] for body in hook.bodies] == ["A test of Tidepool's alerts"]
    assert os.environ["NO_PROXY"] == "*"
    assert not has_work(alerts)


def test_a_message_is_claimed_by_one_sender_and_by_another_after_its_death(channel: Channel, alice: User) -> None:
    actions.test_channel(alice, channel.pk)
    now = timezone.now()
    [dead] = outbox.claim_due(now, 8)
    assert outbox.claim_due(now + timedelta(seconds=59), 8) == []
    [later] = outbox.claim_due(now + timedelta(seconds=61), 8)
    assert (later.row, later.row.tries) == (dead.row, 2)
    with pytest.raises(ClaimLost):
        outbox.note_sent(dead, now)
    outbox.note_sent(later, now)
    assert Delivery.objects.get().state == Delivery.State.SENT
