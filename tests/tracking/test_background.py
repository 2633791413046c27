"""One background worker mirrors at a time; another takes over when the first ends, is killed, or hangs."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.factories import JobFactory
from tests.tracking.fake_mlflow import FakeMlflow
from tracking import background
from tracking.background import MirrorLoop
from tracking.mirror import Mirror
from tracking.models import MirrorState
from tracking.upstream import MlflowServer

pytestmark = pytest.mark.django_db


class CountedMirror:
    """A mirror that counts its turns, and does in each what the test wants."""

    def __init__(self, within: Callable[[], None] = lambda: None) -> None:
        self.turns = 0
        self._within = within

    def turn(self, now: datetime, between_calls: Callable[[], None]) -> bool:
        self.turns += 1
        self._within()
        between_calls()
        return False


def loop(mirror: Any, stop: threading.Event | None = None) -> MirrorLoop:
    return MirrorLoop(mirror, stop or threading.Event())


def expire_claim() -> None:
    MirrorState.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))


def test_the_second_worker_stands_by_and_takes_over_after_the_claim_has_expired() -> None:
    first, second = CountedMirror(), CountedMirror()
    loop(first).turn()
    standing_by = loop(second)
    standing_by.turn()
    assert (first.turns, second.turns) == (1, 0)
    expire_claim()
    standing_by.turn()
    assert second.turns == 1


def test_a_worker_that_ends_releases_the_claim() -> None:
    stop = threading.Event()
    loop(CountedMirror(stop.set), stop).run()
    assert MirrorState.objects.get().claim == ""
    second = CountedMirror()
    loop(second).turn()
    assert second.turns == 1


def test_a_worker_whose_claim_another_one_took_stops_its_turn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "_RENEW_SECONDS", 0.0)
    second = CountedMirror()

    def hang() -> None:
        expire_claim()
        loop(second).turn()

    first = CountedMirror(hang)
    slow = loop(first)
    assert not slow.turn()
    assert "claimed by another worker" in caplog.text
    slow.turn()
    assert (first.turns, second.turns) == (1, 1)


def test_a_turn_is_broken_off_when_the_process_shall_end(mlflow: FakeMlflow) -> None:
    stop = threading.Event()
    jobs = [JobFactory() for _ in range(3)]
    mirror = Mirror(MlflowServer(mlflow.transport))
    stop.set()
    assert not loop(mirror, stop).turn()
    assert mlflow.runs == {}
    loop(mirror).turn()
    expire_claim()
    loop(mirror).turn()
    assert len(mlflow.runs) == len(jobs)
