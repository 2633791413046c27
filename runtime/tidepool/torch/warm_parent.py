"""Imports of a forkserver before it forks: torch, its first optimizer, and the coordinator of a job."""

import gc
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]

from tidepool.torch.coordination import coordinator  # noqa: F401  # children find it loaded

__all__ = ["hear_warning_of_exceptions", "leave_libraries", "warm_up"]


def warm_up() -> None:
    torch.set_num_threads(1)
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])  # imports torch._dynamo: as slow as torch itself
    leave_libraries()
    hear_warning_of_exceptions()
    gc.collect()
    gc.freeze()  # the collector must not touch, and so copy, pages shared with the children


def leave_libraries() -> None:
    """Let processes end without unregistering torch's operators one by one.

    torch has that done at an interpreter's end, for destructors that come later. Ranks end by `os._exit`, before any
    destructor, and it costs each of them half of the processor time of a script that does nothing.
    """
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # there is no other list of them
        alive = finalizer.peek()
        if alive is not None and alive[1].__module__ == "torch.library":
            finalizer.atexit = False


def hear_warning_of_exceptions() -> None:
    """Have torch say here, unheard, that `Work.exception` goes: it says so once in a process and those that it forks.

    No other call tells at once that an operation has failed, and the line would be in the log of each rank.
    """
    future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
    future.set_result([])
    with _no_errors_output():
        _create_work_from_future(future).exception()


@contextmanager
def _no_errors_output() -> Iterator[None]:
    """Drop what is written to the descriptor of the standard error, by this process's only thread."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
