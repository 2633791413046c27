from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from alerts import actions
from alerts.loop import AlertLoop
from alerts.models import Channel
from tests.alerts.receivers import Hook, web_receiver


@pytest.fixture
def hook(settings: Any) -> Iterator[Hook]:
    settings.TIDEPOOL_ALERT_NETWORKS = ["127.0.0.0/8"]
    settings.TIDEPOOL_SITE_URL = "https://gpus.example.org"
    with web_receiver() as receiver:
        yield receiver


@pytest.fixture
def channel(hook: Hook, alice: User) -> Channel:
    return actions.add_channel(alice, "hook", "webhook", hook.url).row


@pytest.fixture
def loop() -> AlertLoop:
    """Return a loop that has made its first turn before any event."""
    made = AlertLoop()
    made.turn(timezone.now())
    return made
