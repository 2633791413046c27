"""Batches of a pass in the order of their samples: of one size, or as a `batch_sampler` of the script makes them."""

from bisect import bisect_right
from itertools import accumulate, chain
from operator import sub

__all__ = ["BatchedOrder", "batch_at", "batches_in"]


class BatchedOrder(list[int]):
    """The order of a pass whose batches a `batch_sampler` of the script's own makes, of any sizes."""

    def __init__(self, batches: list[list[int]]) -> None:
        super().__init__(chain.from_iterable(batches))
        #: The place after the last sample of each batch.
        self.ends = list(accumulate(map(len, batches)))

    @property
    def largest(self) -> int:
        """The samples of the largest batch."""
        return max(map(sub, self.ends, [0, *self.ends]), default=1)

    def end_of(self, place: int) -> int:
        """Return the place after the batch that `place` is in."""
        return self.ends[bisect_right(self.ends, place)] if place < len(self) else place


def batch_at(order: list[int], place: int, size: int) -> list[int]:
    """Return the samples of the batch that begins at this place of an order."""
    return order[place : order.end_of(place) if isinstance(order, BatchedOrder) else place + size]


def batches_in(order: list[int], first: int, last: int, size: int) -> int:
    """Return the number of batches between two places of an order. size: of a batch, unless the order has its own."""
    if isinstance(order, BatchedOrder):
        return bisect_right(order.ends, last) - bisect_right(order.ends, first)
    return -(-(last - first) // size)
