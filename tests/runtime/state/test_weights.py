"""Test of written weights: a machine without a GPU loads them, too."""

from pathlib import Path
from typing import Any

import torch
from tidepool.torch.state.checkpoint_files import write_weights
from torch.overrides import TorchFunctionMode


class Moves(TorchFunctionMode):
    """Notes the tensors that are taken to main memory. On a machine without a GPU, they are there already."""

    def __init__(self) -> None:
        super().__init__()
        self.moved: list[int] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.cpu:
            self.moved.append(args[0].data_ptr())
        return function(*args, **(kwargs or {}))


def test_weights_and_optimizer_state_are_written_from_main_memory(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    with Moves() as moves:
        write_weights(tmp_path, "final", model, {"optimizer": optimizer}, {"average": average})
    momenta = [each for state in optimizer.state.values() for each in state.values()]
    held = [*model.state_dict().values(), *average.module.state_dict().values(), *momenta]
    assert {tensor.data_ptr() for tensor in held} <= {*moves.moved}
    saved = torch.load(tmp_path / "model/train/final.pth", weights_only=True)
    assert torch.equal(saved["weight"], model.weight)
