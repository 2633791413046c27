"""Hooks of a script on the gradients of parameters: they run on the sum over all ranks, as on one process.

In a backward, torch hands `Tensor.register_hook` and `register_post_accumulate_grad_hook` the gradient of this rank's
part of the step. A hook that clamps or scales it would change each part by itself. So torch is given a stand-in while a
sum is under way, and the hook is called once the sum is there. A script may add and remove hooks at any time.
"""

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["GradientHooks"]

#: Hooks of this module of torch count the gradients of one backward, and work nowhere else.
_WITHIN_BACKWARD = "torch.autograd.graph"


@dataclass
class _Deferred:
    """Stands in for a hook, under its place in torch's table: a handle that the script has removes it."""

    hook: Callable[[Any], Any]
    is_summing: Callable[[], bool]

    def __call__(self, given: Any) -> Any:
        return None if self.is_summing() else self.hook(given)


class GradientHooks:
    """The hooks of `parameters`, but for `own`, which each of them has when its gradient is accumulated.

    is_summing: whether a gradient is a part of a sum over all ranks.
    """

    def __init__(
        self, parameters: Sequence[torch.nn.Parameter], own: Callable[[Any], Any], is_summing: Callable[[], bool]
    ) -> None:
        self._parameters = parameters[::-1]  # as backward comes to them
        self._own = own
        self._is_summing = is_summing
        #: The script has hooks.
        self.exist = False

    def defer(self) -> None:
        """Put stand-ins in the place of hooks that are new."""
        self.exist = False
        # Each step comes here: parameters without hooks of the script cost two look-ups.
        for parameter in self._parameters:
            if parameter._backward_hooks or len(parameter._post_accumulate_grad_hooks or ()) > 1:
                self._defer(parameter)

    def _defer(self, parameter: torch.nn.Parameter) -> None:
        for table in _tables(parameter):
            for place, hook in table.items():
                if not isinstance(hook, _Deferred) and hook != self._own and not _is_within_backward(hook):
                    table[place] = _Deferred(hook, self._is_summing)
                self.exist = self.exist or isinstance(table[place], _Deferred)

    @torch.no_grad()
    def gradients_are_summed(self) -> None:
        """Call the hooks on gradients; what they return is the gradient."""
        for parameter in self._parameters:
            if parameter.grad is not None:
                for hook in _deferred(_tables(parameter)[0]):
                    changed = hook(parameter.grad)
                    if changed is not None and changed is not parameter.grad:
                        parameter.grad.copy_(changed)

    @torch.no_grad()
    def gradients_are_accumulated(self) -> None:
        """Call the hooks on parameters that have got their gradient."""
        for parameter in self._parameters:
            if parameter.grad is not None:
                for hook in _deferred(_tables(parameter)[1]):
                    hook(parameter)


def _tables(parameter: torch.nn.Parameter) -> list[MutableMapping[int, Any]]:
    """Hooks by place: those on the gradient, and those on the parameter when its gradient is accumulated."""
    return [parameter._backward_hooks or {}, parameter._post_accumulate_grad_hooks or {}]


def _deferred(table: MutableMapping[int, Any]) -> list[Callable[[Any], Any]]:
    return [hook.hook for hook in table.values() if isinstance(hook, _Deferred)]


def _is_within_backward(hook: Any) -> bool:
    return str(getattr(getattr(hook, "func", hook), "__module__", "")) == _WITHIN_BACKWARD
