"""Calls a script's `datasets_fn`: on one rank of a host at a time until one has come through, since many download."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidepool.env import rank_context

__all__ = ["datasets_of"]


def datasets_of(datasets_fn: Callable[[], Any]) -> tuple[Any, Any]:
    """(training, held-out); the latter None where the function returns only one."""
    with _alone_on_this_host():
        found = datasets_fn()
    if isinstance(found, tuple | list) and len(found) == 2:
        training, held_out = found
        if any(isinstance(part, tuple) and part and all(hasattr(array, "shape") for array in part) for part in found):
            raise TypeError(
                "datasets_fn returned arrays, as for Keras: return two datasets of PyTorch, such as "
                "TensorDataset(inputs, labels)"
            )
        return training, held_out
    if isinstance(found, tuple | list):
        raise TypeError(f"datasets_fn returned {len(found)} things: return (training dataset, test dataset)")
    return found, None


@contextmanager
def _alone_on_this_host() -> Iterator[None]:
    """The first call of the job on a host keeps the others waiting; what is there then may be read by all at once."""
    context = rank_context()
    if context is None:
        yield
        return
    done = Path(context.folder, f".datasets.{context.host}.done")
    with Path(context.folder, f".datasets.{context.host}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if done.exists():
            fcntl.flock(file, fcntl.LOCK_SH)
        yield
        done.touch()
