"""Comparison of two trainings, to the bit."""

from typing import Any

import torch
from torch.utils._pytree import tree_flatten_with_path

__all__ = ["different"]


def different(one: Any, other: Any) -> list[str]:
    """Names of what is not the same in both, to the bit."""
    (ones, shape), (others, other_shape) = tree_flatten_with_path(one), tree_flatten_with_path(other)
    assert shape == other_shape
    return ["".join(map(str, path)) for (path, a), (_, b) in zip(ones, others, strict=True) if _bits(a) != _bits(b)]


def _bits(value: Any) -> Any:
    return value.numpy().tobytes() if isinstance(value, torch.Tensor) else value
