"""Trainings that are slow by one known cause: its part takes the time. By real processes.

Ten trainings, and the advice on them, are in `test_named_causes.py`.
"""

from collections.abc import Callable

import pytest
from tidepool.protocol import SPENT_PARTS

from tests.runtime.lab import Lab
from tests.runtime.slow_trainings import trained


def slow_lab(make_lab: Callable[..., Lab], *arguments: str) -> Lab:
    return make_lab("slow_by_cause.py", arguments=[*arguments], min_slots=2, effective_batch_size=16)


def test_a_rank_whose_data_is_late_is_named_as_the_straggler(make_lab: Callable[..., Lab]) -> None:
    held_up, slow = trained(slow_lab(make_lab, "--cause", "data", "--slot", "1"))
    assert abs(held_up.part("straggling") - slow.measured(by=held_up)) / held_up.seconds < 0.1, (held_up, slow)
    assert abs(slow.part("data") - slow.measured()) / slow.seconds < 0.1, slow
    assert slow.rank["last_in"] > 0.9 * slow.rank["sums"] > 10
    assert slow.rank["caused_seconds"] > 10 * held_up.rank["caused_seconds"]


@pytest.mark.long
@pytest.mark.parametrize("cause", ["data", "compute", "optimizer", "script"])
@pytest.mark.parametrize("loop", ["session", "prepare"])
def test_a_cause_in_each_step_takes_the_time(make_lab: Callable[..., Lab], cause: str, loop: str) -> None:
    own_loop = ["--prepare"] if loop == "prepare" else []
    for told in trained(slow_lab(make_lab, "--cause", cause, *own_loop)):
        assert abs(told.part(cause) - told.measured()) / told.seconds < 0.1, told
        assert max(SPENT_PARTS, key=told.part) == cause, told
        assert told.rank["steps"] > 10


def plain_lab(make_lab: Callable[..., Lab], *arguments: str) -> Lab:
    lab = make_lab("slow_plain.py", arguments=[*arguments], sizes={"a": 2}, engine="fixed", min_slots=2)
    for name in ("checkpoint", "model"):
        (lab.folder / name).mkdir()
    return lab


def test_a_plain_script_whose_rank_is_late_names_the_straggler(make_lab: Callable[..., Lab]) -> None:
    told = trained(plain_lab(make_lab, "--cause", "data", "--rank", "1"))
    [slow] = [each for each in told if each.part("data") > 1]
    [held_up] = [each for each in told if each is not slow]
    assert abs(held_up.part("straggling") - slow.measured(by=held_up)) / held_up.seconds < 0.1, told
    assert abs(slow.part("data") - slow.measured()) / slow.seconds < 0.1, told
    assert slow.rank["last_in"] > 0.9 * slow.rank["sums"] > 10


@pytest.mark.long
@pytest.mark.parametrize("cause", ["compute", "optimizer", "script"])
def test_a_cause_in_each_step_of_a_plain_script_takes_the_time(make_lab: Callable[..., Lab], cause: str) -> None:
    for told in trained(plain_lab(make_lab, "--cause", cause)):
        assert abs(told.part(cause) - told.measured()) / told.seconds < 0.1, told
        assert max(SPENT_PARTS, key=told.part) == cause, told
