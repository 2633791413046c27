"""Something else is killed while the survivors of a death are finding together: they train on all the same."""

import os
import signal
from collections.abc import Callable

import torch
from tidepool import procfs

from tests.runtime.lab import Lab
from tests.runtime.test_hand_over import is_stopped
from tests.runtime.test_kill_matrix import ARGUMENTS, STEP_SECONDS, assert_nothing_lost, reference
from tests.waiting import wait_until

__all__ = ["reference"]

Make = Callable[..., Lab]


def begin(make_lab: Make, sizes: dict[str, int], faults: str = "") -> Lab:
    """A job on all places, drawn out until the test waits for the end."""
    arguments = [*ARGUMENTS, "--step-seconds", STEP_SECONDS]
    count = sum(sizes.values())
    lab = make_lab(
        "mlp.py",
        arguments=arguments,
        sizes=sizes,
        environment={"TIDEPOOL_FAULT": faults} if faults else {},
        min_slots=count,
    )
    lab.size(count)
    return lab


def kill_coordinator(lab: Lab) -> None:
    first = lab.coordinator
    os.kill(first["pid"], signal.SIGKILL)
    wait_until(lambda: not procfs.alive(first["pid"], first["started_at"]), lab.story)


def test_a_coordinator_is_killed_before_it_has_seen_the_death(
    make_lab: Make, reference: dict[str, torch.Tensor]
) -> None:
    lab = begin(make_lab, {"a": 3})
    lab.wait_for_steps(3)
    os.kill(lab.coordinator["pid"], signal.SIGSTOP)
    lab.kill("a.0.1")
    wait_until(lambda: "a.0.1" in lab.exits(), lab.story)
    kill_coordinator(lab)
    assert len(lab.journal("generation_planned")) == 1, "nobody has told the survivors how to go on"
    lab.start_coordinator()
    wait_until(lambda: len(lab.member_ids()) == 3 and "a.0.1" not in lab.member_ids(), lab.story)
    lab.wait_for_the_end()

    assert lab.member_ids()[:2] == ["a.1.2", "a.2.3"]
    assert len(lab.started()) == 4
    assert_nothing_lost(lab, reference)


def test_a_coordinator_is_killed_while_the_survivors_agree(make_lab: Make, reference: dict[str, torch.Tensor]) -> None:
    faults = "reduce@a.0.1:4:kill,agree@a.1.2:1:stop,agree@a.2.3:1:stop"
    lab = begin(make_lab, {"a": 3}, faults)
    for survivor in ("a.1.2", "a.2.3"):  # both: one that still builds its group needs the coordinator's store
        wait_until(lambda survivor=survivor: is_stopped(lab, survivor), lab.story)  # type: ignore[misc]
    kill_coordinator(lab)
    for survivor in ("a.1.2", "a.2.3"):
        lab.kill(survivor, signal.SIGCONT)
    lab.wait_for_steps(3)
    assert lab.active()["generation"] == 1, "they trained on with nobody to tell that to"
    lab.start_coordinator()
    wait_until(lambda: len(lab.member_ids()) == 3 and "a.0.1" not in lab.member_ids(), lab.story)
    lab.wait_for_the_end()

    assert lab.member_ids()[:2] == ["a.1.2", "a.2.3"]
    assert len(lab.started()) == 4
    assert_nothing_lost(lab, reference)


def test_a_shim_is_killed_while_the_survivors_agree(make_lab: Make, reference: dict[str, torch.Tensor]) -> None:
    faults = "reduce@a.0.1:4:kill,agree@b.0.1:1:stop"
    lab = begin(make_lab, {"a": 2, "b": 2}, faults)
    wait_until(lambda: is_stopped(lab, "b.0.1"), lab.story)
    theirs = {member_id: rank for member_id, rank in lab.started().items() if member_id.startswith("b.")}
    os.kill(lab.shims["b"]["pid"], signal.SIGKILL)
    for rank in theirs.values():
        wait_until(lambda rank=rank: not procfs.alive(rank["pid"], rank["started_at"]), lab.story)  # type: ignore[misc]
    wait_until(lambda: lab.member_ids()[:1] == ["a.1.2"], lab.story)
    lab.start_shim("b")
    lab.size(4)
    wait_until(lambda: len(lab.member_ids()) == 4 and not set(theirs) & set(lab.member_ids()), lab.story)
    lab.hurry()
    wait_until(lambda: lab.journal("finished"), lab.story)
    wait_until(lambda: set(lab.started()) - set(theirs) == set(lab.exits()), lab.story)

    assert set(lab.exits()) - {"a.0.1"} >= {"a.1.2"}
    assert [member_id for member_id, end in lab.exits().items() if end["code"] != 0] == ["a.0.1"]
    assert not lab.journal("lost")
    assert_nothing_lost(lab, reference)
