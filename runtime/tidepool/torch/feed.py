"""Batches for steps: read in the training process, or ahead of time by worker processes.

Workers are those of torch's DataLoader. They are asked for the micro-batches that this rank will compute if nobody
comes or goes. When somebody has, what they have read in vain is dropped and they are asked anew. What a dataset draws
while a micro-batch is read (augmentation) depends on the seed, the step and the place in the step, so that it is the
same with any number of workers, and with none.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import dropwhile
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from tidepool import procfs
from tidepool.torch.data import Collate, collate, seed_reading
from tidepool.torch.randomness import Generators

__all__ = ["Feed", "Piece"]

#: Micro-batches that each worker is ahead.
AHEAD = 2


@dataclass(frozen=True)
class Piece:
    """A micro-batch: the step, the place of its first sample in it, and the samples."""

    step: int
    first: int
    indices: list[int]


class Feed:
    """Hands out the batches of one dataset. `ahead()` iterates over this rank's pieces from the present step on."""

    def __init__(
        self, dataset: Dataset[Any], collate_fn: Collate | None, seed: int, workers: int, generators: Generators
    ) -> None:
        if workers < 0:
            raise ValueError(f"num_workers must not be negative, but is {workers}")
        self._reader = _Reader(dataset, collate_fn, seed)
        self._workers = workers
        self._generators = generators
        self._plan = _Plan()
        self._batches: Any = None
        self.ahead: Callable[[], Iterator[Piece]] = lambda: iter(())

    def prepare(self) -> None:
        """Have workers begin, so that the first step does not wait for their start."""
        if self._workers and self._batches is None:
            self._open(self.ahead())

    def take(self, wanted: Piece) -> Any:
        """The batch of that piece, which is one of `ahead`."""
        if not self._workers:
            with self._generators.aside():
                return self._reader[wanted][1]
        asked = False
        while True:
            try:
                if self._batches is None:
                    self._open(self._from(wanted))
                    asked = True
                piece, batch = next(self._batches)
            except StopIteration:  # all that was planned has been read
                self.close()
                if asked:
                    raise RuntimeError("this step is over: iterate the one that session.steps() has yielded") from None
                continue
            if piece == wanted:
                return batch
            if not asked:
                self._plan.pieces = self._from(wanted)
                asked = True

    def close(self) -> None:
        """End the workers. What they have read and nobody has taken is dropped."""
        batches, self._batches = self._batches, None
        if batches is not None:
            batches._shutdown_workers()

    def _from(self, wanted: Piece) -> Iterator[Piece]:
        return dropwhile(lambda piece: piece != wanted, self.ahead())

    def _open(self, pieces: Iterator[Piece]) -> None:
        self._plan.pieces = pieces
        loader = DataLoader(
            self._reader,
            batch_size=None,
            sampler=self._plan,
            num_workers=self._workers,
            prefetch_factor=AHEAD,
            collate_fn=_as_it_is,
            worker_init_fn=partial(_begin_worker, os.getpid()),
            multiprocessing_context="fork",
            generator=torch.Generator(),  # else it draws from the script's
        )
        self._batches = iter(loader)


class _Plan(Sampler[Piece]):
    """The pieces that workers read next; `pieces` may be exchanged at any time."""

    pieces: Iterator[Piece] = iter(())

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        return next(self.pieces)


class _Reader(Dataset[tuple[Piece, Any]]):
    """Reads pieces as a dataset is read, in whatever process."""

    def __init__(self, dataset: Dataset[Any], collate_fn: Collate | None, seed: int) -> None:
        self._dataset, self._collate_fn, self._seed = dataset, collate_fn, seed

    def __getitem__(self, piece: Piece) -> tuple[Piece, Any]:
        seed_reading(self._seed, piece.step, piece.first)
        return piece, collate(self._dataset, piece.indices, self._collate_fn)


def _as_it_is(read: Any) -> Any:
    return read


def _begin_worker(rank_pid: int, worker: int) -> None:
    """A worker ends with its rank, and holds none of the rank's connections open: peers must see them end."""
    procfs.die_with_parent(rank_pid)
    procfs.set_role("reader")
    null = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if _is_connection(descriptor):
            os.dup2(null, descriptor)  # closed, and its number not used again while the copied objects name it
    os.close(null)


def _is_connection(descriptor: int) -> bool:
    """A TCP socket. Workers need their pipes, and local sockets to hand over shared memory."""
    try:
        duplicate = os.dup(descriptor)
    except OSError:  # that of the listing itself
        return False
    try:
        with socket.socket(fileno=duplicate) as one:
            return one.family in (socket.AF_INET, socket.AF_INET6)
    except OSError:  # no socket
        os.close(duplicate)
        return False
