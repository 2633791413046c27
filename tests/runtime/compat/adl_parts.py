"""Parts of a script in AdaptDL's manner, and a process in which no training has begun."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import adaptdl.torch as adl
import pytest
import torch
from adaptdl import _training, collective
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset


@contextmanager
def nothing_has_begun() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.autograd, "backward", torch.autograd.backward)
        for name, function in vars(torch.distributed).copy().items():
            if callable(function):
                patch.setattr(torch.distributed, name, function)  # put back afterwards
        patch.setattr(collective, "_is_initialized", False)
        _training.training.cache_clear()
        yield
    _training.training.cache_clear()


def data(samples: int = 24) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(samples, 4, generator=generator), torch.randn(samples, 1, generator=generator))


class Parts:
    """Model, data and optimizer of a script."""

    def __init__(self, *, wrap: bool = True, samples: int = 24, adam: bool = False, **how: Any) -> None:
        torch.manual_seed(2)
        self.net: Any = torch.nn.Linear(4, 1)
        kind: Any = torch.optim.Adam if adam else torch.optim.SGD
        self.optimizer = kind(self.net.parameters(), lr=0.1)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5)
        loader: Any = adl.AdaptiveDataLoader if wrap else DataLoader
        self.loader = loader(data(samples), **{"batch_size": 8, **how})
        self.rates: list[float] = []
        if wrap:
            self.net = adl.AdaptiveDataParallel(self.net, self.optimizer, self.schedule)
        self.optimizer.register_step_post_hook(lambda *_: self.rates.append(self.optimizer.param_groups[0]["lr"]))

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        mse_loss(self.net(inputs), targets).backward()
        self.optimizer.step()

    def epoch(self) -> list[int]:
        """Train for an epoch; samples of each batch."""
        sizes = []
        for inputs, targets in self.loader:
            self.step(inputs, targets)
            sizes.append(len(inputs))
        return sizes
