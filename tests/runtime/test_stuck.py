"""Ranks that live and do nothing: found, killed, replaced, and nothing lost. By real processes."""

import os
import signal
from collections.abc import Callable
from typing import Any

import torch

from tests.runtime.lab import Lab
from tests.runtime.test_failures import assert_nothing_lost
from tests.runtime.test_live_resize import ARGUMENTS, reference
from tests.waiting import wait_until

__all__ = ["reference"]

#: Long enough for a loaded machine, where an innocent rank may get no processor for seconds.
STUCK_SECONDS = 6.0


def stuck(lab: Lab) -> dict[str, dict[str, Any]]:
    return {record["member_id"]: record for record in lab.journal("rank_stuck")}


def test_stopped_seized_and_hanging_ranks_are_killed_and_replaced(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]
) -> None:
    faults = "reduce@a.0.1:6:stop,reduce@a.1.2:16:seize,reduce@a.2.3:26:hang"
    lab = make_lab(
        "mlp.py",
        arguments=ARGUMENTS,
        environment={"TIDEPOOL_FAULT": faults},
        stuck_seconds=STUCK_SECONDS,
        stall_seconds=2 * STUCK_SECONDS,
        min_slots=4,
    )
    lab.size(4)
    wait_until(lambda: len(stuck(lab)) == 3 and len(lab.started()) == 7, lab.story)
    lab.wait_for_the_end()

    found = {member_id: record["silent"] for member_id, record in stuck(lab).items()}
    # The seized rank is silent, or has kept the others waiting: its last sign of life may be later than their waiting.
    assert found.keys() == {"a.0.1", "a.1.2", "a.2.3"}
    assert (found["a.0.1"], found["a.2.3"]) == (True, False)
    for member_id in stuck(lab):
        end = lab.exits()[member_id]
        assert end["error"]["kind"] == "Stuck", end
        assert end["signal"] in (signal.SIGKILL, signal.SIGABRT), end
    assert "mlp.py" in lab.exits()["a.2.3"]["error"]["traceback"], "where it hangs"
    assert lab.exits()["a.3.4"]["code"] == 0, "the one that did nothing wrong trained through all of it"
    assert len(lab.started()) == 7, "each was replaced"
    assert_nothing_lost(lab, reference)


def test_a_joiner_that_is_stopped_while_it_receives_the_state_holds_nobody_up(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]
) -> None:
    lab = make_lab(
        "mlp.py",
        arguments=ARGUMENTS,
        environment={"TIDEPOOL_FAULT": "receive@a.1.2:1:stop"},
        stuck_seconds=STUCK_SECONDS,
    )
    lab.size(1)
    lab.wait_for_steps(3)
    [first] = lab.member_ids()
    lab.size(2)
    wait_until(lambda: "a.1.2" in lab.exits(), lab.story)
    lab.wait_for_size(2)
    lab.wait_for_the_end()

    assert list(stuck(lab)) == ["a.1.2"]
    assert lab.member_ids() == [first, "a.1.3"]
    assert_nothing_lost(lab, reference)


def test_a_host_that_falls_silent_is_left_behind_and_what_lives_there_is_killed_when_it_comes_back(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]
) -> None:
    lab = make_lab("mlp.py", arguments=ARGUMENTS, sizes={"a": 2, "b": 1}, stuck_seconds=STUCK_SECONDS)
    lab.size(3)
    lab.wait_for_size(3)
    [theirs] = [member_id for member_id in lab.member_ids() if member_id.startswith("b.")]
    ours = [member_id for member_id in lab.member_ids() if member_id != theirs]
    for pid in (lab.shims["b"]["pid"], lab.started()[theirs]["pid"]):
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: lab.member_ids() == ours, lab.story)
    finally:
        os.kill(lab.shims["b"]["pid"], signal.SIGCONT)
    wait_until(lambda: theirs in lab.exits(), lab.story)
    lab.wait_for_the_end()

    assert lab.exits()[theirs]["error"]["kind"] == "Stuck"
    assert_nothing_lost(lab, reference)


def test_a_script_that_never_comes_to_its_training_in_one_slot_costs_the_others_nothing(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]
) -> None:
    arguments = [*ARGUMENTS[:5], "0.5", "--never-ready", "a.1."]
    lab = make_lab("mlp.py", arguments=arguments, launch_seconds=5.0)
    lab.size(2)
    wait_until(lambda: len(lab.journal("rank_failed")) == 2, lab.story)
    lab.wait_for_the_end()

    for failed, member_id in zip(lab.journal("rank_failed"), ("a.1.2", "a.1.3"), strict=True):
        assert (failed["member_id"], failed["step"], failed["error"]["kind"]) == (member_id, None, "LaunchTimeout")
        assert "mlp.py" in failed["error"]["traceback"], "where it hung"
        assert "after 5 s the script had not come to session.epochs()" in failed["error"]["message"]
        assert lab.exits()[member_id]["by_script"]
    assert set(lab.started()) == {"a.0.1", "a.1.2", "a.1.3"}, "tried twice, then the slot stays empty"
    assert lab.exits()["a.0.1"]["code"] == 0
    assert_nothing_lost(lab, reference)


def test_a_lone_rank_that_tells_nothing_is_killed_and_the_attempt_is_over(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("mlp.py", arguments=ARGUMENTS, environment={"TIDEPOOL_FAULT": "reduce:5:seize"}, stuck_seconds=2.0)
    lab.size(1)
    wait_until(lambda: lab.journal("lost"), lab.story)

    assert list(stuck(lab)) == ["a.0.1"]
    assert not lab.journal("finished")
