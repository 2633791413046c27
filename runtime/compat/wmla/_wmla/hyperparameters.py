"""An optimizer's learning rates and the like as a list of numbers, so that all ranks have those of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

__all__ = ["Hyperparameters"]


class Hyperparameters:
    """Those that the optimizer has when this is made: numbers, and tuples of numbers, of each parameter group."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        #: Its parameter groups are other objects once it has received state.
        self._optimizer = optimizer
        self._places = [(number, key) for number, group in enumerate(optimizer.param_groups) for key in _numeric(group)]
        self.count = len(self.read())

    def read(self) -> list[float]:
        groups = self._optimizer.param_groups
        return [float(value) for number, key in self._places for value in _values(groups[number][key])]

    def write(self, numbers: Sequence[float]) -> None:
        """What is the same already stays as it is, its type too."""
        rest = iter(numbers)
        for number, key in self._places:
            group = self._optimizer.param_groups[number]
            before = _values(group[key])
            after = [next(rest) for _ in before]
            if after == [float(value) for value in before]:
                continue
            if isinstance(group[key], torch.Tensor):
                group[key].fill_(after[0])
            else:
                group[key] = tuple(after) if isinstance(group[key], tuple) else after[0]


def _numeric(group: dict[str, Any]) -> Iterator[str]:
    for key in sorted(group):
        if key != "params" and all(_is_number(value) for value in _values(group[key])):
            yield key


def _values(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple) else (value,)


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return isinstance(value, int | float) and not isinstance(value, bool)
