"""Functions of `torch.distributed` that scripts call beside AdaptDL's: the group of a training changes its size.

Of a group that torch itself had formed they would speak for ever. Barriers and numbers are the training's; all others
are refused.
"""

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch.distributed
from tidepool.env import rank_context

from adaptdl._training import training

__all__ = ["Turn", "stand_in"]

_REFUSED = (
    *("all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "broadcast"),
    *("broadcast_object_list", "gather", "gather_object", "irecv", "isend", "new_group", "recv", "reduce"),
    *("reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send"),
)


class Turn:
    """One process of a job at a time, until the first has come through: it prepares files that all of them read."""

    def __init__(self, folder: Path, attempt: int) -> None:
        self._done = folder / f".adaptdl-{attempt}.done"
        self._lock = folder / f".adaptdl-{attempt}.lock"
        self._held: IO[str] | None = None

    def take(self) -> None:
        if self._held is None and not self._done.exists():
            self._held = self._lock.open("a")
            fcntl.flock(self._held, fcntl.LOCK_EX)
            if self._done.exists():
                self._held.close()
                self._held = None

    def give(self) -> None:
        if self._held is not None:
            self._done.touch()
            self._held.close()
            self._held = None


def stand_in() -> None:
    """Take the place of torch's functions."""
    context = rank_context()
    if context is not None:
        training().turn = Turn(context.folder.parent, context.attempt)
    instead: dict[str, Callable[..., Any]] = {
        "barrier": _barrier,
        "get_rank": lambda group=None: training().rank,
        "get_world_size": lambda group=None: training().size,
        "is_initialized": lambda: True,
        "destroy_process_group": lambda group=None: None,
        **{name: _refusal(name) for name in _REFUSED},
    }
    for name, function in instead.items():
        setattr(torch.distributed, name, function)


def _barrier(*_: object, **__: object) -> None:
    training().come_through()
    training().gathered(None, "torch.distributed.barrier()")


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError(
            f"torch.distributed.{name} needs a process group that stays as it is: use adaptdl.collective, or an "
            "Accumulator"
        )

    return refuse
