"""Trainings that are slow by one known cause: the cause is named, with its share. By real processes."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tidepool.protocol import SPENT_PARTS

from tests.runtime.lab import Lab
from tests.waiting import wait_until

#: Seconds of the cause after each step.
Truth = list[float]


def shares_of(rank: Mapping[str, Any]) -> dict[str, float]:
    total = sum(rank["seconds"])
    return {part: seconds / total for part, seconds in zip(SPENT_PARTS, rank["seconds"], strict=True)}


def put_in(rank: Mapping[str, Any], truth: Truth) -> float:
    """Return the fraction of a rank's time that the cause has taken, up to the step at which the time was read."""
    return truth[rank["steps"] - 1] / sum(rank["seconds"])


def trained(lab: Lab, ranks: int) -> tuple[dict[str, Truth], dict[str, Any]]:
    """Let it train. Return what each rank has put in, and its newest sums from before its last step.

    A rank that is done sleeps, which counts for what it was in.
    """
    lab.size(ranks)

    def truths() -> dict[str, Truth]:
        places = lab.folder.glob("log/*/truth.json")
        return {path.parent.name.removesuffix(".a"): json.loads(path.read_text()) for path in places}

    wait_until(lambda: len(truths()) == ranks, lab.story)
    found, newest = truths(), dict[str, Any]()
    for entry in lab.journal("time_spent"):
        for rank in entry["ranks"]:
            if 0 < rank["steps"] < len(found[rank["member_id"]]):
                newest[rank["member_id"]] = rank
    assert set(newest) == set(found), lab.story()
    return found, newest


def slow_lab(make_lab: Callable[..., Lab], *arguments: str) -> Lab:
    return make_lab("slow_by_cause.py", arguments=[*arguments], min_slots=2, effective_batch_size=16)


def assert_named(lab: Lab, cause: str) -> None:
    """Assert that all ranks are slow by this cause, with the share that they have themselves measured."""
    truths, newest = trained(lab, 2)
    for member_id, rank in newest.items():
        shares = shares_of(rank)
        assert abs(shares[cause] - put_in(rank, truths[member_id])) < 0.1, (cause, rank, truths[member_id])
        assert max(shares, key=lambda part: shares[part]) == cause, shares
        assert rank["steps"] > 10


def test_a_rank_whose_data_is_late_is_named_as_the_straggler(make_lab: Callable[..., Lab]) -> None:
    lab = slow_lab(make_lab, "--cause", "data", "--slot", "1")
    truths, newest = trained(lab, 2)
    [slow] = [rank for rank in newest.values() if rank["member_id"].startswith("a.1.")]
    [held_up] = [rank for rank in newest.values() if rank["member_id"].startswith("a.0.")]
    shares, truth = shares_of(held_up), truths[slow["member_id"]]
    assert abs(shares["straggling"] - put_in(held_up, truth)) < 0.1, (truth, held_up)
    assert abs(shares_of(slow)["data"] - put_in(slow, truth)) < 0.1, (truth, slow)
    assert slow["last_in"] > 0.9 * slow["sums"] > 10
    assert slow["caused_seconds"] > 10 * held_up["caused_seconds"]


@pytest.mark.long
@pytest.mark.parametrize("cause", ["data", "compute", "optimizer", "script"])
@pytest.mark.parametrize("loop", ["session", "prepare"])
def test_a_cause_in_each_step_is_named(make_lab: Callable[..., Lab], cause: str, loop: str) -> None:
    own_loop = ["--prepare"] if loop == "prepare" else []
    assert_named(slow_lab(make_lab, "--cause", cause, *own_loop), cause)


@pytest.mark.long
def test_a_validation_between_epochs_is_named(make_lab: Callable[..., Lab]) -> None:
    assert_named(slow_lab(make_lab, "--cause", "validation", "--seconds", "1"), "validation")


@pytest.mark.long
def test_a_rank_that_saves_often_is_named_with_checkpoints(make_lab: Callable[..., Lab]) -> None:
    # One of some four steps is saved: many steps, so that one save more or less is little of the time.
    lab = slow_lab(make_lab, "--cause", "checkpoint", "--seconds", "0.5", "--train-steps", "200")
    truths, newest = trained(lab, 2)
    [first] = [rank for rank in newest.values() if shares_of(rank)["checkpoint"] > 0.1]
    assert abs(shares_of(first)["checkpoint"] - put_in(first, truths[first["member_id"]])) < 0.1
    assert first["last_in"] > 0
