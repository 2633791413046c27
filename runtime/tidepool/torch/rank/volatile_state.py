"""What a script changes by itself between two updates: hyperparameters, and the state of what it has registered."""

import copy
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from tidepool.torch.state.digest import sums_of
from tidepool.torch.state.training_state import Position, Stateful, TrainingState

__all__ = ["VolatileState", "place_digest", "saved"]

Optimizers = Mapping[str, torch.optim.Optimizer]


@dataclass(frozen=True)
class VolatileState:
    """A copy that can be restored."""

    registered: dict[str, Any] = field(default_factory=dict)
    #: Hyperparameters of each optimizer's groups.
    rates: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def of(cls, registered: Mapping[str, Stateful], optimizers: Optimizers, *, modules: bool) -> "VolatileState":
        """modules: those of the registered objects, too, whose weights are copied with them."""
        chosen = {name: item for name, item in registered.items() if modules or not isinstance(item, torch.nn.Module)}
        states = {name: copy.deepcopy(item.state_dict()) for name, item in chosen.items()}
        return cls(states, {name: _rates_of(optimizer) for name, optimizer in optimizers.items()})

    def restore(self, registered: Mapping[str, Stateful], optimizers: Optimizers) -> None:
        """Put it back. What the script has made since stays as it is."""
        for name, state in self.registered.items():
            registered[name].load_state_dict(copy.deepcopy(state))
        for name, rates in self.rates.items():
            groups = optimizers[name].param_groups if name in optimizers else []
            for group, values in zip(groups, rates, strict=False):
                group.update(values)


class Weights:
    """A copy, in main memory, of a model's parameters and buffers, and of which parameters are trained."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._trained = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
        tensors = [tensor.detach() for tensor in (*model.parameters(), *model.buffers())]
        self._kept = [(tensor, sums_of(tensor), tensor.to("cpu", copy=True)) for tensor in tensors]

    def restore(self) -> None:
        """Put back what was changed. Versions do not tell, since a write to `.data` counts in none."""
        for parameter, is_trained in self._trained:
            parameter.requires_grad_(is_trained)
        for tensor, sums, kept in self._kept:
            if sums_of(tensor) != sums:
                tensor.copy_(kept)


def saved(registered: Mapping[str, Stateful], training: TrainingState) -> Callable[[], None]:
    """Save what the script's repetition may change of a state; return a function that restores it."""
    optimizers = training.optimizers
    items = {name: item for name, item in registered.items() if name in training.registered}
    state, weights = VolatileState.of(items, optimizers, modules=True), Weights(training.model)

    def restore() -> None:
        state.restore(registered, optimizers)
        weights.restore()

    return restore


def _rates_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the hyperparameters of its groups."""
    return [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]


def place_digest(position: Position, optimizers: Optimizers, further: object) -> int:
    """Return a number that differs between ranks at different batches, with different rates or anything further."""
    groups = [group for _, optimizer in sorted(optimizers.items()) for group in _rates_of(optimizer)]
    rates = [value for group in groups for value in group.values() if isinstance(value, int | float)]
    return zlib.crc32(repr((position.epoch, position.passes, position.cursor, rates, further)).encode())
