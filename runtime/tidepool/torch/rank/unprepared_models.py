"""Models that a script's loop changes, though it has not given them to `prepare`: averages, target networks."""

import sys
import weakref
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch

from tidepool.live_objects import instances_of
from tidepool.refusal import Refusal
from tidepool.torch.rank.own_counts import consumer
from tidepool.torch.rank.unprepared_tensors import UnpreparedTensors

__all__ = ["UnpreparedModels"]

#: Numbers of a parameter that are compared: whoever changes a weight of an average changes all of them.
_SAMPLED = 16
#: Numbers of the boundaries at which two more than these are compared: to look for models takes some milliseconds.
_FIRST = frozenset({0, 16, 256, 4096, 65536})


class UnpreparedModels:
    """Compares the weights of other models, and tensors that stand for weights, at three boundaries in turn.

    parameters: ids of the training's own.

    A model that changes in both bodies between them changes in each. One that changes between epochs, as a copy does
    that is evaluated, may be made anew from the training's model.
    """

    def __init__(self, model: torch.nn.Module, parameters: Collection[int], registered: Iterable[Any]) -> None:
        self._own, self._registered = parameters, registered
        self._tensors = UnpreparedTensors(model, registered)
        #: Parameter -> what it was, and whether it had changed by then.
        self._seen: dict[int, tuple[weakref.ref[torch.Tensor], list[float], bool]] = {}
        self._boundaries = 0

    def look(self) -> None:
        """Raise Refusal at a boundary if a model that no optimizer has changes in each body of the loop."""
        number, self._boundaries = self._boundaries, self._boundaries + 1
        if number in _FIRST:
            self._seen = {}
            self._tensors.forget()
        if not _FIRST.isdisjoint((number, number - 1, number - 2)):
            self._compare()
            if text := self._tensors.changing(consumer(sys._getframe(1))):
                raise Refusal(
                    f"the loop changes {text}, in which the script keeps a tensor for each parameter, such as an "
                    "average of the weights: a process that joins, and a training that resumes, would begin it anew. "
                    "Give the class a state_dict() that returns it and a load_state_dict(), and give the object to "
                    "tidepool.torch.prepare; or use torch.optim.swa_utils.AveragedModel"
                )

    def _compare(self) -> None:
        every = instances_of(torch.nn.Module, torch.optim.Optimizer)
        modules = [each for each in every if issubclass(type(each), torch.nn.Module)]
        known = {*self._own, *_optimized(every), *(id(one) for model in self._carried() for one in model.parameters())}
        seen = {}
        for module in modules:
            for parameter in _own_parameters(module):
                if id(parameter) in known:
                    continue
                sample = parameter.detach().reshape(-1)[:_SAMPLED].double().tolist()
                same, numbers, has_changed = self._seen.get(id(parameter), (None, sample, False))
                changes = same is not None and same() is parameter and numbers != sample
                if changes and has_changed:
                    name = type(_outermost(module, modules)).__name__
                    raise Refusal(
                        f"the loop changes the weights of a model, {name}, that was not given to "
                        "tidepool.torch.prepare (an average of the weights, a target network): a process that joins, "
                        "and a training that resumes, would begin it anew. Give it, beside the model that is trained"
                    )
                seen[id(parameter)] = weakref.ref(parameter), sample, changes
        self._seen = seen

    def _carried(self) -> Iterator[torch.nn.Module]:
        """Yield the models in objects that carry their state by themselves."""
        for item in self._registered:
            for value in vars(item).values() if hasattr(item, "__dict__") else ():
                every = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
                yield from (each for each in every if isinstance(each, torch.nn.Module))


def _optimized(every: Iterable[Any]) -> Iterator[int]:
    for each in every:
        if issubclass(type(each), torch.optim.Optimizer):
            groups = getattr(each, "param_groups", [])  # one that is being made has none
            yield from (id(parameter) for group in groups for parameter in group["params"])


def _own_parameters(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Yield what lies in the module itself; a half-made one has none."""
    every = vars(module).get("_parameters", {}).values()
    return (one for one in every if one is not None and one.is_floating_point() and one.numel())


def _outermost(module: torch.nn.Module, modules: Iterable[torch.nn.Module]) -> torch.nn.Module:
    """Return the module in which it lies that is a part of no other one."""
    for each in modules:
        if any(part is module for part in vars(each).get("_modules", {}).values()):
            return _outermost(each, modules)
    return module
