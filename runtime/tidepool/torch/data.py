"""The division of samples among steps and ranks, and the random numbers of a step.

Everything is a pure function of (seed, epoch, step, virtual rank), never of how many ranks there were before: an epoch
is one permutation, a step the next `effective_batch_size` samples of it, a rank's share a contiguous span of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from tidepool.torch.randomness import seed_all

__all__ = [
    "Collate",
    "Part",
    "collate",
    "epoch_order",
    "micro_batches",
    "moved",
    "parts",
    "seed_reading",
    "seed_step",
    "share",
    "sized",
]

Collate = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class Part:
    """A unit of computation: a rank's share of a step, or in exactness `bitwise` a virtual rank's."""

    number: int
    #: Micro-batches, as spans of the step's samples. None for a part that has no samples.
    pieces: list[tuple[int, int]]


def epoch_order(seed: int, epoch: int, samples: int) -> list[int]:
    generator = torch.Generator().manual_seed(_mixed(seed, epoch, 0x0E))
    order: list[int] = torch.randperm(samples, generator=generator).tolist()
    return order


def share(start: int, end: int, rank: int, size: int) -> tuple[int, int]:
    """The span of [start, end) that `rank` computes: spans differ by at most one sample, larger ones first."""
    quotient, remainder = divmod(end - start, size)
    first = start + rank * quotient + min(rank, remainder)
    return first, first + quotient + (1 if rank < remainder else 0)


def micro_batches(first: int, last: int, largest: int) -> list[tuple[int, int]]:
    """[first, last) cut into the fewest pieces of at most `largest`, as equal as possible."""
    count = -(-(last - first) // largest)
    return [share(first, last, piece, count) for piece in range(count)]


def parts(samples: int, place: tuple[int, int], virtual_ranks: int | None, largest: int | None) -> list[Part]:
    """The parts that one of the ranks computes. There is at least one, but for more ranks than virtual ranks.

    samples: of the step, or of a whole dataset. place: (which one, of how many). largest: samples of a micro-batch.
    """
    if virtual_ranks is None:
        numbers, count = range(place[0], place[0] + 1), place[1]
    else:
        numbers, count = range(*share(0, virtual_ranks, *place)), virtual_ranks
    spans = [(number, *share(0, samples, number, count)) for number in numbers]
    return [Part(number, micro_batches(first, last, largest or max(1, last - first))) for number, first, last in spans]


def seed_step(seed: int, step: int, part: int) -> None:
    """Random numbers drawn in a step (dropout, augmentation) depend on the step and the part, nothing else."""
    seed_all(_mixed(seed, step, part + 0x100))


def seed_reading(seed: int, step: int, first: int) -> None:
    """As `seed_step`, for what a dataset draws while a micro-batch is read; `first`: its first sample's place."""
    seed_all(_mixed(seed, step, first, 0xDA7A))


def sized(dataset: Dataset[Any]) -> int:
    """Number of samples. Raises TypeError for a dataset without a length or without indices."""
    if isinstance(dataset, DataLoader):
        raise TypeError(
            "pass the dataset, not a DataLoader: the session itself shuffles and divides; session.steps(dataset, "
            "num_workers=..., collate_fn=...) reads as a DataLoader does"
        )
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise TypeError(
            "elastic training divides each epoch among a changing number of ranks and needs a dataset with a length "
            "and indices (a map-style dataset); an IterableDataset has neither"
        )
    length: int = len(dataset)
    if length == 0:
        raise ValueError("the training dataset is empty: check the folder in DATA_DIR")
    return length


def collate(dataset: Dataset[Any], indices: list[int], collate_fn: Collate | None = None) -> Any:
    return (collate_fn or default_collate)([dataset[index] for index in indices])


def moved(value: Any, device: torch.device) -> Any:
    """With its tensors on that device, also inside lists and dicts."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: moved(item, device) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [moved(item, device) for item in value]
    return value


def _mixed(*parts: int) -> int:
    """Distinct 63-bit seeds for distinct parts (the 64-bit finalizer of MurmurHash3, applied part by part)."""
    mixed = 0
    for part in parts:
        mixed = (mixed ^ part) & 0xFFFFFFFFFFFFFFFF
        for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            mixed = ((mixed ^ (mixed >> 33)) * multiplier) & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ (mixed >> 33)) + 0x9E3779B97F4A7C15
    return mixed & 0x7FFFFFFFFFFFFFFF
