"""Division of a step among ranks: this rank's parts, now and in the steps to come."""

from collections.abc import Iterator
from dataclasses import dataclass

from tidepool.torch.adaptive.adaptation import Adaptation
from tidepool.torch.data import MicroBatch, Part, epoch_order, parts
from tidepool.torch.rank.batched_order import batch_at
from tidepool.torch.rank.transitions import Transitions
from tidepool.torch.state.training_state import Position

__all__ = ["StepDivision"]


@dataclass(frozen=True)
class StepDivision:
    """One rank's view of the division of steps."""

    seed: int
    position: Position
    transitions: Transitions
    virtual_ranks: int | None
    rank_batch_size: int | None
    adaptation: Adaptation | None
    #: Fewest samples of a part that has any: BatchNorm does not train on one.
    least_samples: int = 1

    def order(self, samples: int) -> list[int]:
        """Return the order of the pass under way."""
        return epoch_order(self.seed, self.position.epoch, samples, self.position.passes)

    def next_order(self, samples: int) -> list[int]:
        """Begin another pass, because the epoch continues beyond the last sample."""
        self.position.passes, self.position.cursor = self.position.passes + 1, 0
        return self.order(samples)

    def further(self, epoch: int, order: list[int], samples: int, *, whole: bool = False) -> list[int] | None:
        """Return the order in which this epoch of so many samples goes on; None: it is over.

        whole: a pass ends where less is left of it than a step takes.
        """
        if not self.goes_on(epoch, samples):
            return None
        left = len(order) - self.position.cursor
        if left > 0 and not (whole and self.position.cursor and left < self.position.effective_batch_size):
            return order
        return self.next_order(samples)

    def goes_on(self, epoch: int, samples: int) -> bool:
        """Return whether the epoch continues: it has samples left, or, if the batch adapts, progress to be made."""
        if self.position.epoch != epoch:
            return False
        if self.adaptation is None:
            return self.position.cursor < samples
        return not self.adaptation.epoch_is_over(epoch, samples)

    def chunk(self, order: list[int], cursor: int) -> list[int]:
        """Return the samples of a step."""
        return batch_at(order, cursor, self.position.effective_batch_size)

    def ahead(self, order: list[int], sharing: list[int]) -> Iterator[MicroBatch]:
        """This rank's micro-batches to the end of the pass, if nobody comes or goes. `sharing`: of the next step."""
        number, cursor, all_ranks = self.position.step, self.position.cursor, self.transitions.all_sharing
        while chunk := self.chunk(order, cursor):
            for part in self.of_step(len(chunk), number, sharing):
                for first, last in part.pieces:
                    yield MicroBatch(number, first, chunk[first:last])
            number, cursor, sharing = number + 1, cursor + len(chunk), all_ranks

    def of_step(self, samples: int, number: int, sharing: list[int]) -> list[Part]:
        """This rank's parts of a step of so many samples."""
        return self.parts(samples, self._largest_part(samples, number, sharing), sharing, self.least_samples)

    def first_span(self, samples: int, number: int, sharing: list[int]) -> tuple[int, int]:
        """Return the first micro-batch of a step of so many samples, whichever rank computes it."""
        largest = self._largest_part(samples, number, sharing)
        pieces = parts(samples, (0, len(sharing)), self.virtual_ranks, largest, self.least_samples)[0].pieces
        return pieces[0] if pieces else (0, 0)

    def _largest_part(self, samples: int, number: int, sharing: list[int]) -> int | None:
        largest = self.largest(samples, number, len(sharing))
        return largest if largest is None or largest == self.rank_batch_size else max(largest, self.least_samples)

    def largest(self, samples: int, number: int, ranks: int) -> int | None:
        """Samples of a micro-batch of step `number`, which so many ranks share."""
        return self.rank_batch_size if self.adaptation is None else self.adaptation.largest(samples, number, ranks)

    @property
    def most_micro_batch(self) -> int:
        """Samples of a rank's micro-batch at most, on any number of ranks; 0: all that it has of a step is one."""
        if self.virtual_ranks is None:
            return self.rank_batch_size or 0
        samples = self.position.effective_batch_size
        all_parts = parts(samples, (0, 1), self.virtual_ranks, self.rank_batch_size, self.least_samples)
        return max(last - first for part in all_parts for first, last in part.pieces)

    def parts(self, samples: int, largest: int | None, sharing: list[int], least: int = 1) -> list[Part]:
        """Return the parts of that many samples that this rank computes: none if it is not one of those that share."""
        rank = self.transitions.group.rank
        if rank not in sharing:
            return []
        return parts(samples, (sharing.index(rank), len(sharing)), self.virtual_ranks, largest, least)
