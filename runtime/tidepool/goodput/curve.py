"""The best batch and its goodput on many sizes at once: G* of `model`."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidepool.goodput.model import Bounds, NoiseScale, Size, ThroughputParameters, gain

__all__ = ["CANDIDATES", "Best", "Curve", "best", "curve"]

#: Number of batch sizes that are tried for each world size, in geometric steps.
CANDIDATES = 50
#: Largest number of world sizes whose candidates are cached, some 80 kB each; for more they are computed each time.
_REMEMBERED_SIZES = 64

_Floats = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.int64]


class Best(NamedTuple):
    """Best result of one size."""

    #: Steps at the job's own batch size per second; 0 where no batch fits the bounds.
    goodput: float
    #: M: samples of a step over all ranks.
    batch: int
    #: b: samples of a rank's largest micro-batch.
    micro_batch: int
    #: s: micro-batches of a step beside the last one.
    accumulation: int


class Curve(NamedTuple):
    """Arrays of one entry per size; see `Best`."""

    goodput: _Floats
    batch: _Integers
    micro_batch: _Integers
    accumulation: _Integers

    def at(self, position: int) -> Best:
        return Best(
            float(self.goodput[position]),
            int(self.batch[position]),
            int(self.micro_batch[position]),
            int(self.accumulation[position]),
        )


def curve(parameters: ThroughputParameters, bounds: Bounds, noise: NoiseScale | None, sizes: Sequence[Size]) -> Curve:
    """Return the best for each of `sizes`. With a fixed batch or unknown noise, a job keeps its own batch size."""
    if noise is None:
        bounds = replace(bounds, max_batch_size=None)
    choices = _remembered_choices if len(sizes) <= _REMEMBERED_SIZES else _choices
    batch, accumulation, micro, is_allowed = choices(bounds, tuple(size.ranks for size in sizes))
    total = np.array([parameters.sum_seconds(size) for size in sizes])[:, None]
    seconds = np.asarray(
        parameters.whole_step_seconds(micro.astype(np.float64), total, accumulation.astype(np.float64))
    )
    worth = np.asarray(gain(noise, bounds.batch_size, batch.astype(np.float64)))
    goodput = np.where(is_allowed, worth / np.maximum(seconds, 1e-12), 0.0)
    # Among batch sizes that are equally good to nine digits the smallest wins: the same on every machine.
    found = np.argmax(goodput >= goodput.max(axis=1, keepdims=True) * (1 - 1e-9), axis=1)
    rows = np.arange(len(found))
    return Curve(goodput[rows, found], batch[rows, found], micro[rows, found], accumulation[rows, found])


def best(parameters: ThroughputParameters, bounds: Bounds, noise: NoiseScale | None, size: Size) -> Best:
    return curve(parameters, bounds, noise, [size]).at(0)


def _choices(bounds: Bounds, counts: tuple[int, ...]) -> tuple[_Integers, _Integers, _Integers, npt.NDArray[np.bool_]]:
    """Batches, further micro-batches, samples of the largest one, and what is allowed: a row per count of ranks. The
    same for whatever has been measured."""
    ranks = np.array(counts, dtype=np.int64)[:, None]
    batch = _candidates(bounds, ranks)
    accumulation, is_allowed = _accumulation(bounds, ranks, batch)
    return batch, accumulation, -(-batch // (ranks * (accumulation + 1))), is_allowed


_remembered_choices = lru_cache(maxsize=256)(_choices)


def _candidates(bounds: Bounds, ranks: _Integers) -> _Integers:
    """Rows of batches in rising order, one row per size."""
    if bounds.max_batch_size is None:
        return np.full_like(ranks, bounds.batch_size)
    most = bounds.max_batch_size
    least = np.minimum(np.maximum(bounds.batch_size, bounds.min_micro_batch * ranks), most)
    steps = np.linspace(0.0, 1.0, CANDIDATES)
    found = np.rint(least * (most / least) ** steps).astype(np.int64)
    return np.clip(found, least, most)


def _accumulation(bounds: Bounds, ranks: _Integers, batch: _Integers) -> tuple[_Integers, npt.NDArray[np.bool_]]:
    """Return the fewest further micro-batches that fit a rank, and which batches the bounds allow.

    One rank measures the noise only between micro-batches: with a larger batch than its own it has at least two, if it
    may have several. Otherwise it cuts some steps in two to measure it, as with its own batch.
    """
    per_rank = -(-batch // ranks)
    needed = np.zeros_like(batch)
    if bounds.max_micro_batch is not None:
        needed = -(-per_rank // bounds.max_micro_batch) - 1
    if bounds.is_adaptive and bounds.accumulation:
        needed = np.where((ranks == 1) & (batch > bounds.batch_size), np.maximum(needed, 1), needed)
    is_allowed = np.ones_like(batch, dtype=bool)
    if not bounds.accumulation:
        is_allowed &= needed == 0
    if bounds.is_adaptive:
        is_allowed &= per_rank >= bounds.min_micro_batch
    return needed, is_allowed
