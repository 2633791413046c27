"""Weights as files for `torch.load`: what a training ends with, and what it had after an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel

from tidepool.torch.update import first_of

__all__ = ["WEIGHTS_FOLDER", "write_weights"]

#: Below the folder of an attempt.
WEIGHTS_FOLDER = Path("model", "train")


def write_weights(
    results: Path,
    name: str,
    model: torch.nn.Module,
    optimizers: Mapping[str, torch.optim.Optimizer],
    registered: Mapping[str, Any],
) -> None:
    """`<name>.pth` and `<name>_optimizer_state.pth`, whole or not at all. Averaged weights, or whatever module is
    registered, are a result too: `<name>_<registered>.pth`.
    """
    states = {key: optimizer.state_dict() for key, optimizer in optimizers.items()}
    contents: dict[str, Any] = {
        f"{name}.pth": model.state_dict(),
        f"{name}_optimizer_state.pth": states if len(states) > 1 else first_of(states),
    }
    for key, item in registered.items():
        if isinstance(item, torch.nn.Module):
            module = item.module if isinstance(item, AveragedModel) else item
            contents[f"{name}_{key}.pth"] = module.state_dict()
    folder = results / WEIGHTS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, content in contents.items():
        torch.save(content, folder / f".{file_name}")
        (folder / f".{file_name}").rename(folder / file_name)
