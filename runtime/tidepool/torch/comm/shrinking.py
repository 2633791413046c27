"""After a death: the survivors cut a smaller communicator from the one that they have, instead of making a new one.

All survivors have to do it alike. Each tells in the new generation's store from which communicator it would cut which
ranks, and afterwards whether that came about; if one of them did not tell, differs or fails, all make a new one. torch
has `shrink` from 2.9 with NCCL 2.27; never run on a GPU.
"""

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from torch._C._distributed_c10d import Store

from tidepool.torch.comm.nccl import Nccl

__all__ = ["Parent", "excluded_ranks", "offer", "shrunk"]

#: Limit of a shrink. It connects the survivors, for which the parent's own connections serve.
SHRINK_SECONDS = 5.0


@dataclass(frozen=True)
class Parent:
    """The communicator of an earlier generation, and the ranks that are left out of it."""

    nccl: Nccl
    generation: int
    excluded: Sequence[int]


def excluded_ranks(before: Sequence[str], after: Sequence[str]) -> list[int]:
    """Return which ranks of `before` are missing in `after`.

    Empty where none is missing, and where `after` is not the rest of `before` in the same order, as NCCL numbers it.
    """
    rest = [member for member in before if member in after]
    return [rank for rank, member in enumerate(before) if member not in after] if rest == list(after) else []


def offer(store: Store, rank: int, parent: Parent | None) -> None:
    """Tell the others what this rank could shrink. Comes before what they wait for, so that all see the same offers."""
    if parent is not None and parent.excluded and parent.nccl.reserve():
        store.set(f"parent/{rank}", f"{parent.generation} {list(parent.excluded)}")


def shrunk(store: Store, rank: int, size: int, parent: Parent) -> Nccl | None:
    """Return the survivors' communicator. None, on all of them: it did not come about. Raises RuntimeError."""
    offers = [f"parent/{other}" for other in range(size)]
    if not store.check(offers) or len(set(store.multi_get(offers))) != 1:
        return None
    attempt = _Attempt(parent)
    child = attempt.result()
    store.set(f"shrunk/{rank}", "yes" if child else "no")
    answers = store.multi_get([f"shrunk/{other}" for other in range(size)])
    if child is not None and set(answers) == {b"yes"}:
        parent.nccl.forget_operations()
        return child
    if child is not None:
        child.discard()
    return None


class _Attempt:
    """A shrink in a thread, which is given up after a while."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._child: Nccl | None = None
        self._is_given_up = False
        threading.Thread(target=self._run, name="shrink-nccl", daemon=True).start()

    def result(self) -> Nccl | None:
        self._over.wait(SHRINK_SECONDS)
        with self._lock:
            self._is_given_up = self._child is None
        return self._child

    def _run(self) -> None:
        try:
            child = self._parent.nccl.shrink(self._parent.excluded)
        except Exception as error:  # a new communicator takes its place
            print(f"tidepool: NCCL does not shrink: {error}", file=sys.stderr)  # noqa: T201
            self._over.set()
            return
        with self._lock:
            if not self._is_given_up:
                self._child = child
        self._over.set()
        if self._is_given_up:
            child.discard()
