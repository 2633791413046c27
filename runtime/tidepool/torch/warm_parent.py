"""Imports of a forkserver before it forks: torch, its first optimizer, and the coordinator of a job."""

import gc
import weakref

import torch

from tidepool.torch.coordination import coordinator  # noqa: F401  # children find it loaded

__all__ = ["leave_libraries", "warm_up"]


def warm_up() -> None:
    torch.set_num_threads(1)
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])  # imports torch._dynamo: as slow as torch itself
    leave_libraries()
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
