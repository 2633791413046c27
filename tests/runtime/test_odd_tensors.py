"""Whatever a model's tensors are, a training is resized, suspended and resumed with them."""

from collections.abc import Callable
from pathlib import Path

import torch

from tests.runtime.disturbance import final_weights
from tests.runtime.lab import SCRIPTS, Lab
from tests.runtime.off_cluster import run_off_cluster
from tests.runtime.test_halt import halted, newest


def test_complex_weights_and_a_bank_that_grows_are_carried_along(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    first = make_lab("odd_tensors.py", arguments=["--step-seconds", "0.2"], checkpoint_seconds=0.5)
    first.size(1)
    first.wait_for_steps(3)
    first.size(2)
    first.wait_for_size(2)
    first.wait_for_steps(6)
    step = halted(first)
    assert not first.journal("checkpoint_failed"), first.story()
    second = make_lab("odd_tensors.py", checkpoints=newest(first))
    second.size(2)
    second.wait_for_the_end()
    assert [record["step"] for record in second.steps()] == list(range(step + 1, 41)), second.story()
    assert all(end["code"] == 0 for end in [*first.exits().values(), *second.exits().values()]), second.story()

    run_off_cluster(SCRIPTS / "odd_tensors.py", "--out", tmp_path / "alone.pth")
    expected, final = torch.load(tmp_path / "alone.pth", weights_only=True), final_weights(second)
    assert final["bank"].shape == expected["bank"].shape
    for name in ("filter", "out.weight", "out.bias"):
        assert torch.allclose(final[name], expected[name], atol=1e-4), name
