"""Networks, data and batches that `resize.py` trains, by Tidepool and by its competitors alike."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

__all__ = ["NETWORKS", "Network", "samples"]

INPUTS, CLASSES, SAMPLES = 128, 10, 4096


@dataclass(frozen=True)
class Network:
    #: Of the two hidden layers.
    width: int
    #: Samples of a step, over all ranks.
    batch: int

    def build(self) -> nn.Module:
        torch.manual_seed(0)
        hidden = [nn.Linear(self.width, self.width), nn.ReLU()]
        return nn.Sequential(
            nn.Linear(INPUTS, self.width), nn.ReLU(), *hidden, *self._third(), nn.Linear(self.width, CLASSES)
        )

    def _third(self) -> list[nn.Module]:
        return [nn.Linear(self.width, self.width), nn.ReLU()] if self.width > 2000 else []


#: By their number of parameters.
NETWORKS = {"1M": Network(width=940, batch=64), "25M": Network(width=3500, batch=32)}


def samples() -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, INPUTS, generator=generator)
    return torch.utils.data.TensorDataset(inputs, inputs[:, :CLASSES].argmax(1))
