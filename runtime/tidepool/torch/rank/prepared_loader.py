"""The DataLoader under `prepare`: it hands out this rank's share of each batch.

A process that joins comes to the others by repeating what they have done, in batches of which nothing comes. Such a
batch has as few samples as the model takes. Of a pass that the others have completed there is one, so that what the
script does behind its loop finds the variables that it sets in it. A script that counts its iterations, asking for each
batch by `next()` or through a generator of its own, gets one for each batch, so that its count is that of the others.
"""

import dis
import inspect
import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import chain, islice
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader

from tidepool.refusal import Refusal
from tidepool.torch.data import Feed, NoSamplesError, reading_of, to_device
from tidepool.torch.rank.batched_order import batches_in
from tidepool.torch.rank.orders import has_own_batches, sampler_of, set_state, state_of
from tidepool.torch.rank.own_counts import OwnCounts, consumer
from tidepool.torch.rank.prepared_training import PreparedTraining

__all__ = ["Loader"]

#: Operations of Python's that hand on what they iterate over: a `for` loop, and `yield from`.
_ITERATING = frozenset({"FOR_ITER", "SEND"})


class Loader:
    """Iterates over this rank's share of each batch, on the model's device. In evaluation it is a plain DataLoader."""

    def __init__(self, prepared: PreparedTraining, loader: DataLoader[Any]) -> None:
        self._prepared, self._loader = prepared, loader
        self.dataset = loader.dataset
        training_loop, reading = prepared.training_loop, reading_of(loader)
        #: One for all passes: persistent workers outlive them.
        self._feed = Feed(
            loader.dataset,
            loader.collate_fn,
            training_loop.seed,
            reading,
            training_loop.generators,
            training_loop.device,
        )
        self._pass: _Pass | None = None
        prepared.orders.add(sampler_of(loader), is_early=not prepared.has_joined)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __len__(self) -> int:
        """Return the batches of a pass; during one, those that this process gets, including repeated and missed
        ones."""
        if self._pass is not None:
            return self._pass.length()
        if has_own_batches(self._loader):
            return len(self._loader)
        samples, size = len(self._loader.sampler), self._prepared.training_loop.position.effective_batch_size  # type: ignore[arg-type]
        return samples // size if self._loader.drop_last else -(-samples // size)

    def __iter__(self) -> Iterator[Any]:
        if not self._prepared.trains:
            yield from (to_device(batch, self._prepared.training_loop.device) for batch in self._loader)
            return
        prepared, counts = self._prepared, _counts_iterations(sys._getframe(1))
        if prepared.pass_under_way is not None:
            raise Refusal(
                "a prepared loader is being iterated already, and one pass at a time can be divided: for a second one "
                "at once, give tidepool.torch.prepare a further DataLoader of the same dataset, which each process "
                "reads as a whole"
            )
        prepared.script_loop.counts_batches = counts and not prepared.has_epochs
        if not prepared.begin_pass():
            count = len(self) if prepared.script_loop.counts_batches else 1
            yield from self._in_vain(count, self._some_order())
            return
        self._pass = _Pass(prepared, self._loader, self._feed)
        self._pass.begin()
        if prepared.repeated is not None:  # the first pass of this process in which it takes part
            missed = prepared.missed(self._pass.order)
            self._pass.counts.given = missed
            if count := missed or (0 if self._pass.has_batches else 1):
                put_back = prepared.saved()
                yield from self._in_vain(count, self._pass.order)
                put_back()
            prepared.repeated = None
            self._pass.counts_of_others = prepared.training_loop.position.counts
        batches = prepared.pass_under_way = self._pass.batches()
        try:
            yield from batches
        finally:
            self._pass = prepared.pass_under_way = None

    def _some_order(self) -> list[Any]:
        """Return samples of a batch, without a trace in the sampler."""
        training_loop, sampler = self._prepared.training_loop, sampler_of(self._loader)
        state, is_batch = state_of(sampler), has_own_batches(self._loader)
        with training_loop.generators.aside():
            some = [*islice(sampler, 1 if is_batch else training_loop.position.effective_batch_size)]
        order = [*chain(*some)] if is_batch else some
        set_state(sampler, state)
        return order

    def _in_vain(self, count: int, order: list[Any]) -> Iterator[Any]:
        """Yield so many batches of which nothing comes, before the first one that counts."""
        prepared = self._prepared
        if prepared.repeated is not None:
            for batch in prepared.script_loop.in_vain(self._few(order) for _ in range(count)):
                prepared.repeated += 1
                yield batch

    def _few(self, order: list[Any]) -> Any:
        """Return a batch of a few samples, or, where no batch can be made of so few, a whole one."""
        training_loop = self._prepared.training_loop
        try:
            batch = self._feed.read(-1, order[: training_loop.division.least_samples])
        except NoSamplesError:
            batch = self._feed.read(-1, order[: training_loop.position.effective_batch_size])
        return to_device(batch, training_loop.device)


class _Pass:
    """A pass over the data in which the model is trained."""

    def __init__(self, prepared: PreparedTraining, loader: DataLoader[Any], feed: Feed) -> None:
        self._prepared, self._loader, self._feed = prepared, loader, feed
        self._samples = 0
        self.counts = OwnCounts()
        #: The script's counts on the other ranks, as this one comes to them.
        self.counts_of_others: dict[str, float] = {}
        self.order: list[Any] = []

    def begin(self) -> None:
        self._prepared.training_loop.layout.check(optimizers_grow=True)
        self.order = self._prepared.orders.begin(self._loader)
        self._samples = len(self.order)

    @property
    def has_batches(self) -> bool:
        return self._prepared.training_loop.position.cursor < self._samples

    def length(self) -> int:
        position = self._prepared.training_loop.position
        done = position.cursor + self._prepared.script_loop.samples_under_way
        return self.counts.given + batches_in(self.order, done, self._samples, position.effective_batch_size)

    def batches(self) -> Generator[Any]:
        training_loop, script_loop = self._prepared.training_loop, self._prepared.script_loop
        script_loop.own_counts = self.counts
        self.counts.put_back(self.counts_of_others)
        try:
            with closing(
                script_loop.batches(self._feed, self.order, self._draw, self._further, self._samples)
            ) as batches:
                for batch in batches:
                    self.counts.given += 1
                    with self._prepared.dry_run.remembering():
                        yield batch
            script_loop.close_pass()
        except GeneratorExit:
            script_loop.leave(self._samples)
            raise
        finally:
            self.counts.close()
            self._feed.pause()
            training_loop.transitions.settle()
            self._prepared.pass_is_over()

    def _draw(self, indices: list[int]) -> Any:
        training_loop = self._prepared.training_loop
        try:
            batch = self._feed.read(training_loop.position.step, indices)
        except NoSamplesError:
            batch = self._feed.read(
                training_loop.position.step, training_loop.division.chunk(self.order, training_loop.position.cursor)
            )
        return to_device(batch, training_loop.device)

    def _further(self, order: list[int]) -> list[int] | None:
        return order if self.has_batches else None


def _counts_iterations(frame: FrameType | None) -> bool:
    """Return whether the script asks for batches without regard to passes. frame: that which asks for one."""
    frame = consumer(frame)
    if frame is None:
        return False
    is_generator = bool(frame.f_code.co_flags & inspect.CO_GENERATOR)
    return is_generator or dis.opname[frame.f_code.co_code[frame.f_lasti]] not in _ITERATING
