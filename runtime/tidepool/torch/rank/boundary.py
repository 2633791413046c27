"""The state of a training at the newest boundary of a script's own loop, as far as a group of batches changes it."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from tidepool.torch.rank.training_loop import TrainingLoop
from tidepool.torch.rank.volatile_state import VolatileState
from tidepool.torch.state.training_state import Stateful, load_optimizer

__all__ = ["Boundary"]


@dataclass
class Boundary:
    #: Empty off a cluster, where nothing is ever restored.
    position: dict[str, Any] = field(default_factory=dict)
    buffers: list[torch.Tensor] = field(default_factory=list)
    #: State of what the script registered, without modules.
    volatile: VolatileState = field(default_factory=VolatileState)
    #: Weights and state of optimizers that have stepped before the group's last sum: (parameters, state).
    undo: dict[str, tuple[list[torch.Tensor], dict[str, Any]]] = field(default_factory=dict)
    adaptation: dict[str, Any] | None = None
    #: Weights, if the script changes some beside its optimizers.
    weights: list[torch.Tensor] = field(default_factory=list)
    #: Numbers that this rank has added to totals and no sum has taken yet.
    pending: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, training_loop: TrainingLoop, registered: Mapping[str, Stateful]) -> "Boundary":
        position = {name: copy.copy(value) for name, value in vars(training_loop.position).items()}
        adaptation = training_loop.adaptation.state_dict() if training_loop.adaptation else None
        volatile = VolatileState.of(registered, training_loop.optimizers, modules=False)
        boundary = cls(position, volatile=volatile, adaptation=adaptation)
        boundary.keep_weights(training_loop)
        return boundary

    def keep_weights(self, training_loop: TrainingLoop) -> None:
        if training_loop.position.writes_weights:
            self.weights = [parameter.detach().clone() for parameter in training_loop.model.parameters()]

    @torch.no_grad()
    def restore_weights(self, training_loop: TrainingLoop) -> None:
        for parameter, weight in zip(training_loop.model.parameters(), self.weights, strict=False):
            parameter.copy_(weight)

    def keep(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        """Keep what undoes the coming step of an optimizer, if it is the first one of the group."""
        if self.position and name not in self.undo:
            weights = [parameter.detach().clone() for group in optimizer.param_groups for parameter in group["params"]]
            self.undo[name] = weights, copy.deepcopy(optimizer.state_dict())

    def restore(self, training_loop: TrainingLoop) -> None:
        """Restore weights, buffers and position, before a recovery."""
        for name, (weights, state) in self.undo.items():
            _put_back(training_loop.optimizers[name], weights, state)
        self.restore_weights(training_loop)
        training_loop.buffers.put_back(self.buffers)
        training_loop.position.__dict__.update(self.position)
        if training_loop.adaptation is not None and self.adaptation is not None:
            training_loop.adaptation.load_state_dict(self.adaptation)
        self.undo.clear()


def _put_back(optimizer: torch.optim.Optimizer, weights: list[torch.Tensor], state: dict[str, Any]) -> None:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    with torch.no_grad():
        for parameter, weight in zip(parameters, weights, strict=True):
            parameter.copy_(weight)
    load_optimizer(optimizer, state)
