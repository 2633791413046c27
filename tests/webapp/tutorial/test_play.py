"""Plays of the tutorial whose trainings end too early."""

from typing import Any

import pytest

from webapp.tutorial.moments import Expected, Length
from webapp.tutorial.play import Api, MomentMissed, TrainingTooShort, Tutorial


class OneTraining(Api):
    """Site on which every training is in one state, and has had eight GPUs."""

    def __init__(self, state: str) -> None:
        self.state = state

    def get(self, path: str, **query: str | int) -> Any:
        if path.endswith("/allocation/"):
            return [{"at": "2026-03-01T12:00:00+00:00", "slots": 8, "attempt": 1, "pause_ms": None}]
        return {"state": self.state}


@pytest.mark.parametrize(
    ("state", "error"), [("SUCCEEDED", TrainingTooShort), ("FAILED", MomentMissed), ("RUNNING", MomentMissed)]
)
def test_a_moment_is_not_awaited_once_its_training_has_ended(state: str, error: type[MomentMissed]) -> None:
    tutorial = Tutorial(OneTraining(state), lambda sentence: None, 90.0 if state != "RUNNING" else 0.0, 0.0)
    tutorial._jobs = [1]
    with pytest.raises(MomentMissed, match=r"Not seen: T1 halves\. T1 8\.") as missed:
        tutorial._expect(Expected("T1 halves", 4, None))
    assert type(missed.value) is error


@pytest.mark.parametrize("too_short", [0, 2, 3])
def test_trainings_that_ended_too_early_are_played_again_twice_as_long(
    too_short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[Length] = []

    def play(tutorial: Tutorial, slots: int, length: Length) -> None:
        lengths.append(length)
        if len(lengths) <= too_short:
            raise TrainingTooShort("Not seen: T2 gets its half.")

    monkeypatch.setattr(Tutorial, "_clear_the_stage", lambda tutorial: 8)
    monkeypatch.setattr(Tutorial, "_calibrate", lambda tutorial, slots: Length(3, 6))
    monkeypatch.setattr(Tutorial, "_play", play)
    said: list[str] = []
    tutorial = Tutorial(OneTraining("RUNNING"), said.append, 1.0, 0.0)
    if too_short == 3:
        with pytest.raises(TrainingTooShort, match="T2 gets its half"):
            tutorial.play()
    else:
        tutorial.play()
    assert lengths == [Length(3, 6), Length(6, 12), Length(12, 24)][: too_short + 1]
    assert len(said) == min(too_short, 2)
