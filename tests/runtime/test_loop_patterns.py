"""A training ends at its right epoch whatever happens at each step of an epoch: joins, leavers, deaths, suspensions."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runtime.lab import Lab
from tests.runtime.test_halt import halted, newest
from tests.runtime.test_loop_ends import STEPS, assert_whole, weights
from tests.waiting import wait_until

Make = Callable[..., Lab]
EPOCHS = 9
#: Arguments of `loop_ends.py`. A training by plain ranges has no snapshot: its passes cannot be told apart then.
LOOPS = {"epochs": [], "snapshot": ["--snapshot"], "range": ["--by-range"]}
HAPPENINGS = ["grow", "shrink", "death", "suspension"]


class _Training:
    """The attempts of one training."""

    def __init__(self, make_lab: Make, arguments: list[str]) -> None:
        self._make_lab, self._arguments = make_lab, ["--epochs", str(EPOCHS), *arguments]
        self.attempts: list[Lab] = []
        self._size = 1
        self._begin()

    @property
    def lab(self) -> Lab:
        return self.attempts[-1]

    def happen(self, what: str) -> None:
        if what == "suspension":
            wait_until(lambda: self.lab.active()["world_size"], self.lab.story)  # else there is nothing to save
            halted(self.lab)
            self._begin(checkpoints=newest(self.lab))
        elif what == "death" and self._size > 1:
            # A lone rank is the whole training: after another death, one that leaves still counts in the size.
            slots = list(range(self._size))
            wait_until(lambda: sorted(one["slot"] for one in self.lab.active()["members"]) == slots, self.lab.story)
            self.lab.wait_for_steps(2)  # and so is the only one that has the state
            victim = self.lab.member_ids()[0]
            self.lab.kill(victim)
            wait_until(lambda: victim not in self.lab.member_ids(), self.lab.story)
        else:
            self._size = max(1, self._size - 1) if what == "shrink" else min(4, self._size + 1)
            self.lab.size(self._size)

    def wait_for_step(self, step: int) -> None:
        made = sum(len(lab.steps()) for lab in self.attempts)
        self.lab.wait_for_steps(max(0, step - made))

    def _begin(self, **launch: Any) -> None:
        self.attempts.append(
            self._make_lab("loop_ends.py", arguments=[*self._arguments, "--step-seconds", "0.25"], **launch)
        )
        self.lab.size(self._size)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8))])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_training_does_all_of_its_epochs(make_lab: Make, tmp_path: Path, loop: str, seed: int) -> None:
    arguments = LOOPS[loop] + ([str(tmp_path / "snapshot.pt")] if loop == "snapshot" else [])
    dice = random.Random(f"{loop} {seed}")
    training = _Training(make_lab, arguments)
    for epoch in range(1, 1 + len(HAPPENINGS)):
        # At each step of an epoch once, and each of the happenings in each epoch.
        for place, what in zip(range(STEPS), dice.sample(HAPPENINGS, len(HAPPENINGS)), strict=True):
            training.wait_for_step(epoch * STEPS + place)
            training.happen(what)
    training.lab.wait_for_the_end()

    assert_whole(*training.attempts, epochs=EPOCHS)
    alone = make_lab("loop_ends.py", arguments=["--epochs", str(EPOCHS)])
    alone.size(1)
    alone.wait_for_the_end()
    for name, value in weights(alone).items():
        assert torch.allclose(weights(training.lab)[name], value, atol=1e-4), name
