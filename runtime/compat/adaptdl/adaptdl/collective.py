"""Sums of any objects over all replicas. Small ones: each is pickled, and every replica gets all of them.

Call these functions in the same order on all replicas. On a cluster a call between two loops is answered from what it
gave before, where a replica that has joined replays it.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from adaptdl import env
from adaptdl._training import training

__all__ = ["allreduce", "allreduce_async", "broadcast", "initialize", "teardown"]

_is_initialized = False


def initialize(
    master_addr: str | None = None,
    master_port: int | None = None,
    replica_rank: int | None = None,
    num_replicas: int | None = None,
) -> None:
    """Meet the other replicas, as the arguments or the ADAPTDL_ variables say. On a cluster they meet by themselves."""
    connect(master_addr, master_port, replica_rank, num_replicas, torch.device("cpu"))


def connect(
    address: str | None, port: int | None, rank: int | None, replicas: int | None, device: torch.device
) -> None:
    global _is_initialized
    if _is_initialized:
        raise RuntimeError("adaptdl.collective is initialized already: call init_process_group or initialize once")
    training().meet(
        env.master_addr() if address is None else address,
        env.master_port() if port is None else port,
        rank,
        replicas,
        device,
    )
    _is_initialized = True


def teardown() -> None:
    """Wait for all replicas; the next call begins by `initialize`."""
    global _is_initialized
    _check()
    training().gathered(None, "adaptdl.collective.teardown()")
    _is_initialized = False


def allreduce(value: Any, reduce_fn: Callable[[Any, Any], Any] | None = None) -> Any:
    """All replicas' values, reduced from left to right; by default each is added to those before it."""
    _check()
    return functools.reduce(reduce_fn or _add, training().gathered(value, "adaptdl.collective.allreduce()"))


class Future:
    """The result of `allreduce_async`, which was computed at once."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self) -> Any:
        return self._value


def allreduce_async(value: Any, reduce_fn: Callable[[Any, Any], Any] | None = None) -> Future:
    return Future(allreduce(value, reduce_fn))


def broadcast(value: Any) -> Any:
    """Return the value of replica 0."""
    _check()
    ours = training()
    return ours.gathered(value if ours.rank == 0 else None, "adaptdl.collective.broadcast()")[0]


def _add(total: Any, value: Any) -> Any:
    total += value
    return total


def _check() -> None:
    if not _is_initialized:
        raise RuntimeError("adaptdl.collective is not initialized: call adaptdl.torch.init_process_group first")
