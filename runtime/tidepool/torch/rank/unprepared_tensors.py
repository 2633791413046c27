"""Tensors that a script's loop keeps for each parameter, outside of `prepare`: an average of the weights by hand.

Scripts write `shadow[name] = decay * shadow[name] + (1 - decay) * parameter.data`, most of them in an object.
"""

from collections.abc import Iterable, Iterator
from types import FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

__all__ = ["UnpreparedTensors"]

#: Numbers of a tensor that are compared: whoever changes an average changes all of it.
_SAMPLED = 16
#: Attributes that are followed from a variable (`self.ema.shadow` has 2), and upper bound of the objects looked at.
_DEPTH, _MOST_OBJECTS = 2, 2000
#: Objects whose state is carried, or looked for, by other means.
_OTHERS = (torch.nn.Module, torch.optim.Optimizer, torch.Tensor, DataLoader, Dataset, Sampler)
_LIBRARIES = ("tidepool", "adaptdl", "torch")


class _Seen(NamedTuple):
    container: Any
    numbers: list[float]
    #: Numbers of the parameter at that boundary.
    parameter: list[float]
    has_changed: bool


class UnpreparedTensors:
    """Compares dicts and lists of the script that have a tensor for each parameter that is trained."""

    def __init__(self, model: torch.nn.Module, registered: Iterable[Any]) -> None:
        models = [model, *(model.children() if isinstance(model, torch.nn.ModuleDict) else ())]
        self._trained = [{name: one for name, one in each.named_parameters() if one.requires_grad} for each in models]
        self._registered = registered
        self._seen: dict[int, _Seen] = {}

    def forget(self) -> None:
        self._seen = {}

    def changing(self, frame: FrameType | None) -> str:
        """Return the name of tensors that have changed in this body of the loop and in the one before; "": of none.

        frame: the script's, as it asks for a batch.
        """
        seen: dict[int, _Seen] = {}
        for text, container in self._containers(frame):
            if (pair := self._first_pair(container)) is None:
                continue
            parameter, tensor = pair
            numbers, known = _sample(tensor), self._seen.get(id(container))
            changes = known is not None and known.container is container and known.numbers != numbers
            if known is not None and changes and known.has_changed and not _is_copy(numbers, parameter, known):
                return text
            seen[id(container)] = _Seen(container, numbers, _sample(parameter), changes)
        self._seen = seen
        return ""

    def _containers(self, frame: FrameType | None) -> Iterator[tuple[str, Any]]:
        """Yield dicts and lists among the script's variables, and in attributes of its objects."""
        variables = {} if frame is None else {**frame.f_globals, **frame.f_locals}
        waiting = [(name, value, 0) for name, value in variables.items()]
        known = {id(item) for item in self._registered}
        # An object that carries its state carries that of its parts.
        known |= {id(part) for item in self._registered for part in getattr(item, "__dict__", {}).values()}
        for text, value, depth in waiting:
            if isinstance(value, dict | list):
                if id(value) not in known:
                    yield text, value
            elif depth < _DEPTH and len(waiting) < _MOST_OBJECTS and id(value) not in known and _has_own_state(value):
                known.add(id(value))
                attributes = object.__getattribute__(value, "__dict__")
                waiting += [(f"{text}.{name}", one, depth + 1) for name, one in [*attributes.items()]]

    def _first_pair(self, container: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return the first parameter and its tensor in the container; None if it has not one for each parameter."""
        for trained in self._trained:
            if isinstance(container, dict):
                found = [container.get(name) for name in trained]
            else:
                found = container if len(container) == len(trained) else []
            every = zip(trained.values(), found, strict=False)
            pairs = [(each, one) for each, one in every if isinstance(one, torch.Tensor) and one.shape == each.shape]
            if pairs and len(pairs) == len(trained):
                first = next((pair for pair in pairs if pair[0].numel() > 1), pairs[0])
                return None if first[0] is first[1] else first
        return None


def _has_own_state(value: Any) -> bool:
    kind = type(value)
    if isinstance(value, (type, ModuleType, FunctionType, *_OTHERS)) or not kind.__dictoffset__:
        return False
    return kind.__module__.partition(".")[0] not in _LIBRARIES


def _sample(tensor: torch.Tensor) -> list[float]:
    return [float(number) for number in tensor.detach().reshape(-1)[:_SAMPLED].double().tolist()]


def _is_copy(numbers: list[float], parameter: torch.Tensor, before: _Seen) -> bool:
    """Return whether these are weights or gradients of this batch, which the script copies in each."""
    gradient = [] if parameter.grad is None else _sample(parameter.grad)
    return numbers in (_sample(parameter), before.parameter, gradient)
