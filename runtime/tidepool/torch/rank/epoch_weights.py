"""Weights with which an epoch began, for scripts that compute with them above the pass over the data.

Self-training labels samples there, and boosting weighs them. A process that joins in the middle of an epoch, or resumes
there, runs the same lines: it gets these weights for them, and the present ones when its pass begins.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

__all__ = ["EpochWeights"]


class EpochWeights:
    """A copy of parameters and buffers, if the script has called a model above the pass. A part of the state."""

    def __init__(self, models: Iterable[torch.nn.Module]) -> None:
        self._models = list(models)
        self._modules = {id(module) for model in self._models for module in model.modules()}
        self._epoch = -1
        #: Copies in the memory of the host, in the order of `_tensors`; []: the script has called no model.
        self._copies: list[torch.Tensor] = []
        self._watch: Any = None

    def begin(self, epoch: int, *, in_the_middle: bool) -> None:
        """The script begins this epoch. in_the_middle: others have made batches of it."""
        if in_the_middle:
            if self._epoch == epoch:
                with torch.no_grad():
                    for tensor, copy in zip(self._tensors(), self._copies, strict=False):
                        tensor.copy_(copy)
            return
        self._epoch, self._copies = epoch, []
        self._watch = register_module_forward_pre_hook(self._is_called)

    def end_of_top(self) -> None:
        """The script begins a pass, or ends the epoch."""
        if self._watch is not None:
            self._watch.remove()
            self._watch = None

    def end(self) -> None:
        """The script has ended the epoch."""
        self.end_of_top()
        self._copies = []

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "copies": list(self._copies)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._epoch, self._copies = state["epoch"], list(state["copies"])

    def _is_called(self, module: torch.nn.Module, _arguments: Any) -> None:
        if id(module) in self._modules and not self._copies:
            self._copies = [tensor.detach().to("cpu", copy=True) for tensor in self._tensors()]

    def _tensors(self) -> Iterator[torch.Tensor]:
        for model in self._models:
            yield from model.parameters()
            yield from model.buffers()
