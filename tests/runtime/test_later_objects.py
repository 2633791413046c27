"""Trainings whose scripts make optimizers and schedules while they train, and thaw layers: resized and stopped."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runtime.disturbance import final_weights
from tests.runtime.lab import SCRIPTS, Lab
from tests.runtime.off_cluster import run_off_cluster
from tests.runtime.test_halt import halted, newest

Make = Callable[..., Lab]
#: Steps of an epoch.
STEPS = 4
OTHERS = [pytest.param(way, marks=pytest.mark.long) for way in ("group", "alternating")]
SLOW = ["--step-seconds", "0.25"]


def assert_as_alone(lab: Lab, out: Path, *arguments: str) -> None:
    run_off_cluster(SCRIPTS / "phases.py", *arguments, "--out", out)
    expected = torch.load(out, weights_only=True)
    final = final_weights(lab)
    assert all(torch.allclose(final[name], tensor, atol=1e-4) for name, tensor in expected.items()), lab.story()
    assert all(end["code"] == 0 or end["signal"] == 9 for end in lab.exits().values()), lab.story()


@pytest.mark.parametrize("loop", [[], pytest.param(["--by-range"], marks=pytest.mark.long)], ids=["epochs", "range"])
@pytest.mark.parametrize("way", ["another", *OTHERS])
def test_processes_join_in_each_phase(make_lab: Make, tmp_path: Path, way: str, loop: list[str]) -> None:
    arguments = ["--way", way, *loop]
    lab = make_lab("phases.py", arguments=[*arguments, *SLOW])
    for size in (1, 2, 1, 3, 2):
        lab.size(size)
        lab.wait_for_size(size)
        lab.wait_for_steps(STEPS)
    lab.wait_for_the_end()
    assert_as_alone(lab, tmp_path / "alone.pth", *arguments)


@pytest.mark.parametrize("way", ["another", *OTHERS])
def test_the_first_process_dies_and_the_training_is_suspended(make_lab: Make, tmp_path: Path, way: str) -> None:
    first = make_lab("phases.py", arguments=["--way", way, *SLOW])
    first.size(2)
    first.wait_for_size(2)
    first.wait_for_steps(2 * STEPS + 1)
    first.kill(first.member_ids()[0])
    first.wait_for_steps(STEPS)
    step = halted(first)
    second = make_lab("phases.py", arguments=["--way", way], checkpoints=newest(first))
    second.size(2)
    second.wait_for_the_end()
    steps: list[Any] = [record["step"] for record in second.steps()]
    assert steps == list(range(step + 1, 8 * STEPS + 1))
    assert_as_alone(second, tmp_path / "alone.pth", "--way", way)
