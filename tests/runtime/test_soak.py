"""Resizes and deaths by a seeded die, and what many resizes leave behind in a process that stays."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from tests.runtime.lab import Lab, wait_for
from tests.runtime.test_failures import assert_nothing_lost
from tests.runtime.test_live_resize import ARGUMENTS, reference

__all__ = ["reference"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_targets_and_deaths(make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor], seed: int) -> None:
    dice = random.Random(seed)
    places = [(host, slot) for host in "ab" for slot in range(4)]
    lab = make_lab("mlp.py", arguments=ARGUMENTS, sizes={"a": 4, "b": 4})
    lab.target(*places[: dice.randint(2, 6)])
    killed: set[str] = set()
    for _ in range(5):
        lab.wait_for_steps(dice.randint(1, 6))
        alive = [wid for wid in lab.wids() if wid not in killed]
        # One that stays whatever change is under way must live, or the training's state dies with the rest.
        staying = [wid for wid in alive if is_wanted(lab, wid)]
        spared = dice.choice(staying or [""])
        victims = [wid for wid in alive if wid != spared] if staying else []
        for wid in dice.sample(victims, dice.randint(0, len(victims))):
            killed.add(wid)
            with suppress(ProcessLookupError):  # it has left meanwhile
                lab.kill(wid)
        wait_for(lambda: not killed & set(lab.wids()) or lab.journal("finished"), lab.story)
        lab.target(*dice.sample(places, dice.randint(1, 8)))
    lab.wait_for_the_end()

    assert not lab.journal("lost")
    assert_nothing_lost(lab, reference)


def is_wanted(lab: Lab, wid: str) -> bool:
    host, slot, _ = wid.split(".")
    return any((member.host, member.slot) == (host, int(slot)) for member in lab.members)


def test_forty_resizes_leave_nothing_behind_in_a_rank_that_stays(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("mlp.py", arguments=["--epochs", "1000", "--step-seconds", "0.002"], sizes={"a": 3})
    lab.size(1)
    lab.wait_for_size(1)
    [pid] = [entry["pid"] for entry in lab.started().values()]
    for number in range(40):
        lab.size(1 + (number + 1) % 2)
        lab.wait_for_size(1 + (number + 1) % 2)
        if number == 9:
            before = held(pid)
    after = wait_for(lambda: (now := held(pid))[0] <= before[0] and now[1] <= before[1] and now, lambda: str(held(pid)))

    assert after[2] < before[2] + 20_000, "kilobytes of memory"


def held(pid: int) -> tuple[int, int, int]:
    """Open descriptors, threads and kilobytes of memory of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"]), int(status["VmRSS"].split()[0])
