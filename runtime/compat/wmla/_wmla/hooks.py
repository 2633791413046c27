"""Arguments of a script's step and test hooks, and the use of what they return."""

import math
from collections.abc import Callable, Container, Iterator
from itertools import chain, count
from typing import Any

import torch
from tidepool.torch.data import Collate, collate, sample_count, to_device
from torch.utils.data import Dataset

__all__ = ["Batches", "HookedModel", "accuracy", "apart", "are_classes", "as_number", "named_metrics", "pair_of"]


class HookedModel:
    """The model as hooks get it: to be called, and asked for its optimizer and loss. All else is the model's own."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, loss: Any) -> None:
        self._model, self._optimizer, self._loss = model, optimizer, loss

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return self._model(*inputs, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def get_optimizer(self) -> torch.optim.Optimizer:
        return self._optimizer

    def get_loss_function(self) -> Any:
        return self._loss


class Batches(Dataset[int]):
    """The batches of a dataset in its own order, by number; `read` makes the iterator that a test hook gets."""

    def __init__(self, dataset: Dataset[Any], size: int, collate_fn: Collate | None, device: torch.device) -> None:
        self._dataset, self._size, self._collate_fn, self._device = dataset, size, collate_fn, device
        self._samples = sample_count(dataset)

    def __len__(self) -> int:
        return -(-self._samples // self._size)

    def __getitem__(self, number: int) -> int:
        return number

    def read(self, numbers: list[int]) -> Iterator[Any]:
        for number in numbers:
            indices = range(number * self._size, min(self._samples, (number + 1) * self._size))
            yield to_device(collate(self._dataset, list(indices), self._collate_fn), self._device)


def accuracy(outputs: Any, labels: Any) -> float:
    """Accuracy in percent; NaN where outputs are no scores of classes. A step hook gets this function as `eva`."""
    if not are_classes(outputs, labels) or not len(labels):
        return math.nan
    return 100.0 * float((outputs.detach().argmax(1) == labels).double().mean())


def are_classes(outputs: Any, labels: Any) -> bool:
    return (
        isinstance(outputs, torch.Tensor)
        and isinstance(labels, torch.Tensor)
        and outputs.ndim == 2
        and labels.ndim == 1
        and not labels.is_floating_point()
    )


def pair_of(returned: Any) -> tuple[float, Any]:
    """(accuracy in percent or NaN, loss) of what `fn_step_train` returned."""
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise TypeError(f"fn_step_train returned {type(returned).__name__}: return (accuracy, loss)")
    return math.nan if returned[0] is None else as_number(returned[0], "fn_step_train's accuracy"), returned[1]


def as_number(value: Any, what: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what} is a {type(value).__name__}: return one number") from error


def named_metrics(given: Any) -> dict[str, Callable[[Any, Any], Any]]:
    """Return `metrics` of the constructor, functions of (outputs, labels), by name. A second `f1` is named `f1_2`."""
    if given is None:
        return {}
    if isinstance(given, dict):
        items = list(given.items())
    else:
        listed = given if isinstance(given, list | tuple) else [given]
        items = [(getattr(item, "__name__", type(item).__name__), item) for item in listed if callable(item)]
    found: dict[str, Callable[[Any, Any], Any]] = {}
    for name, function in items:
        found[apart(name, found)] = function
    return found


def apart(name: str, others: Container[str]) -> str:
    """Return the name, or with a number if it stands among the others: no name stands for two values."""
    numbered = (f"{name}_{number}" for number in count(2))
    return next(each for each in chain([name], numbered) if each not in others)
