"""Running replays: claims, limits, failures, and removal."""

import threading
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from core.claims import ClaimLost
from core.errors import Conflict, NotAllowed, UserError
from replay import control as replays
from replay import player
from replay.actions import ReplaySpec, ask_for_replay, remove_replay
from replay.background import ReplayWorker
from replay.models import Replay
from replay.player import LimitExceeded
from tests.factories import InstanceGroupFactory, JobFactory, UserFactory

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
END = START + timedelta(hours=1)

pytestmark = pytest.mark.django_db


@pytest.fixture
def carol() -> User:
    JobFactory(submitted_at=START, instance_group=InstanceGroupFactory(name="all"))
    carol: User = UserFactory(is_staff=True)
    return carol


def test_a_replay_runs_once_and_stores_its_result(carol: User) -> None:
    replay = ask_for_replay(ReplaySpec(START, END, {"all": {"policy": "goodput"}}, gpus=4), carol)
    assert ReplayWorker().run_next(threading.Event())
    assert not ReplayWorker().run_next(threading.Event())
    replay.refresh_from_db()
    assert (replay.state, replay.progress, len(replay.jobs)) == (Replay.State.DONE, 1, 1)
    assert replay.result["counted"] == 0


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"start": END, "end": START}, "start"),
        ({"end": timezone.now() + timedelta(hours=1)}, "end"),
        ({"start": START - timedelta(days=40)}, "start"),
        ({"start": START - timedelta(days=2), "end": START - timedelta(days=1)}, "start"),
        ({"gpus": 0}, "gpus"),
        ({"restart_seconds": -1.0}, "restart_seconds"),
        ({"groups": {"nobody": {}}}, "groups"),
        ({"groups": {"all": {"policy": "random"}}}, "groups"),
        ({"groups": {"all": {"members": []}}}, "groups"),
        ({"groups": {"all": 3}}, "groups"),
    ],
)
def test_invalid_requests_are_refused(carol: User, given: dict[str, Any], field: str) -> None:
    with pytest.raises(UserError) as refused:
        ask_for_replay(ReplaySpec(**{"start": START, "end": END, **given}), carol)
    assert list(refused.value.fields) == [field]
    assert not Replay.objects.exists()


def test_only_administrators_start_replays_up_to_a_limit(carol: User) -> None:
    with pytest.raises(NotAllowed):
        ask_for_replay(ReplaySpec(START, END), UserFactory())
    for _ in range(5):
        ask_for_replay(ReplaySpec(START, END), carol)
    with pytest.raises(Conflict):
        ask_for_replay(ReplaySpec(START, END), carol)


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("error", [LimitExceeded("too long"), ZeroDivisionError()])
def test_a_failed_replay_stores_the_reason(carol: User, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    replay = ask_for_replay(ReplaySpec(START, END), carol)
    monkeypatch.setattr("replay.player.run_replay", raising(error))
    ReplayWorker().run_next(threading.Event())
    replay.refresh_from_db()
    assert replay.state == Replay.State.FAILED
    assert replay.problem


def test_time_is_bounded(carol: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "_MAX_CPU_SECONDS", -1.0)
    replay = ask_for_replay(ReplaySpec(START, END), carol)
    with pytest.raises(LimitExceeded):
        player.run_replay(replay, END, lambda part: None)


@pytest.mark.parametrize("grows_by", [0, 2 * 1024**3])
def test_memory_is_bounded_beside_that_of_other_work(
    carol: User, monkeypatch: pytest.MonkeyPatch, grows_by: int
) -> None:
    sizes = chain([5 * 1024**3], repeat(5 * 1024**3 + grows_by))
    process = SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=next(sizes)))
    monkeypatch.setattr(player.psutil, "Process", lambda: process)
    replay = ask_for_replay(ReplaySpec(START, END), carol)
    with pytest.raises(LimitExceeded, match="1 GiB") if grows_by else nullcontext():
        player.run_replay(replay, END, lambda part: None)


def test_a_removed_replay_stops(carol: User) -> None:
    replay = ask_for_replay(ReplaySpec(START, END), carol)
    claim = replays.claim_next(timezone.now())
    assert claim is not None
    remove_replay(replay.pk, carol)
    with pytest.raises(ClaimLost):
        replays.note_progress(claim, 0.5)


def test_a_replay_of_a_stopped_process_is_claimed_by_the_next(carol: User) -> None:
    replay = ask_for_replay(ReplaySpec(START, END), carol)
    assert replays.claim_next(timezone.now() - timedelta(minutes=2)) is not None
    stopping = threading.Event()
    stopping.set()
    ReplayWorker().run_next(stopping)
    replay.refresh_from_db()
    assert replay.state == Replay.State.WAITING
    assert replays.claim_next(timezone.now()) is not None


def test_old_ones_are_removed(carol: User) -> None:
    old, new = (ask_for_replay(ReplaySpec(START, END), carol) for _ in range(2))
    Replay.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(days=36))
    assert replays.prune(timezone.now()) == 1
    assert list(Replay.objects.all()) == [new]
