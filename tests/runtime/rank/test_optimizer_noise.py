"""Random numbers that optimizers draw in their steps depend on the step alone, so all ranks draw the same."""

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.runtime.replicas import on_ranks, own_loop

DATA = TensorDataset(torch.linspace(-1.0, 1.0, 38)[:, None])


class Langevin(torch.optim.SGD):
    """Stochastic gradient Langevin dynamics: each step adds noise to the weights."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(torch.randn_like(parameter), alpha=0.05)


class Noisy(nn.Module):
    """A model that draws as many numbers as it has samples, as dropout does; they change nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1, 1) for _ in range(2))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, features: torch.Tensor) -> Any:
        return self.layers[0](features) + self.layers[1](features) + 0 * torch.rand(len(features), 1)


def noisy_loop(**options: Any) -> dict[str, torch.Tensor]:
    model = Noisy()
    optimizers = [Langevin(layer.parameters(), 0.1) for layer in model.layers]
    (loader, model, *optimizers), epochs, _ = own_loop(DataLoader(DATA, 8), model, *optimizers, **options)
    for _ in epochs(range(2)):
        for (features,) in loader:
            model.zero_grad()
            (model(features) - features).square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()
    return dict(model.state_dict())


def test_noise_of_an_optimizer_does_not_depend_on_the_samples_of_this_process() -> None:
    """On one rank: ranks of these tests are threads, which draw from one generator."""
    ways: list[dict[str, Any]] = [{}, {"rank_batch_size": 3}, {"exactness": "bitwise", "virtual_ranks": 4}]
    whole, *others = (on_ranks(1, partial(noisy_loop, **how))[0] for how in ways)
    for other in others:
        assert all(torch.allclose(other[name], whole[name], atol=3e-6) for name in whole)


def test_optimizers_that_step_in_one_batch_draw_noise_of_their_own() -> None:
    [weights] = on_ranks(1, noisy_loop)
    assert not weights["layers.0.weight"].allclose(weights["layers.1.weight"], atol=1e-3)
