"""State dictionaries as JSON plus tensors, so that no state is ever pickled.

`flatten` turns a nested value (what `state_dict()` gives) into a JSON-safe structure in which each tensor is replaced
by its number, and the list of those tensors; `unflatten` is its inverse. Dictionary keys may be strings or integers.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["flatten", "unflatten"]


def flatten(value: Any, tensors: list[torch.Tensor], where: str = "state") -> Any:
    """The JSON-safe structure of `value`; its tensors are appended to `tensors`.

    Raises TypeError for a value that is neither a number, a string, None, a tensor, nor a dict, list or tuple of them.
    """
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        items = [[key, flatten(item, tensors, f"{where}[{key!r}]")] for key, item in value.items()]
        if any(not isinstance(key, str | int) for key, _ in items):
            raise TypeError(f"{where}: keys must be strings or integers")
        return {"dict": items}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [flatten(item, tensors, f"{where}[{index}]") for index, item in enumerate(value)]}
    raise TypeError(f"{where} is a {type(value).__name__}, which cannot be carried to another process: leave it out")


def unflatten(structure: Any, tensors: list[torch.Tensor]) -> Any:
    if not isinstance(structure, dict):
        return structure
    [(kind, inner)] = structure.items()
    if kind == "tensor":
        return tensors[inner]
    if kind == "dict":
        return {key: unflatten(item, tensors) for key, item in inner}
    items = [unflatten(item, tensors) for item in inner]
    return items if kind == "list" else tuple(items)
