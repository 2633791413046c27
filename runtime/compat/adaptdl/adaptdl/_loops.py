"""A loop over an AdaptiveDataLoader: of the training, by steps, or of an evaluation, by shares."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import torch
from tidepool.torch.data import Feed, MicroBatch, collate, reading_of, sample_count, share, to_device
from tidepool.torch.rank.own_counts import OwnCounts
from tidepool.torch.rank.script_loop import ScriptLoop
from tidepool.torch.rank.training_loop import TrainingLoop
from tidepool.torch.state.randomness import seed_step
from torch.utils.data import DataLoader

from adaptdl._training import Source, Training

__all__ = ["evaluated", "shares", "trained", "trains"]

#: Numbers of steps, for random numbers that belong to no step of the training.
_EVALUATION = -1000


def trains(training: Training, source: Source) -> bool:
    """The loop that begins now is one of the training's."""
    if training.trained not in (None, source) or not torch.is_grad_enabled():
        return False
    return any(item.module.training for item in training.parallels)


def trained(training: Training, source: Source, loader: DataLoader[Any], *, shuffle: bool) -> Iterator[Any]:
    """This replica's batches of the steps that are left to do."""
    training_loop, script_loop, key = training.training_loop, training.script_loop, training.place.key
    assert training_loop is not None
    assert script_loop is not None
    _take_batch_size(training_loop, source)
    training.begin_training_loop()
    training_loop.layout.check()
    counts = script_loop.own_counts = OwnCounts()
    steps = _Steps(training_loop, script_loop, loader, shuffle)
    feed = Feed(
        loader.dataset,
        loader.collate_fn,
        training_loop.seed,
        reading_of(loader),
        training_loop.generators,
        training_loop.device,
    )
    done = _Done(training, steps, key)
    try:
        for batch in steps.batches(feed):
            yield batch
            if script_loop.has_summed:
                training.trained = source
            training.zero()
    except GeneratorExit:
        training.place.left = done.leave  # not here: nothing may be raised where a generator is closed
        raise
    finally:
        counts.close()
        feed.close()
    script_loop.close_pass()
    done.end()


def _take_batch_size(training_loop: TrainingLoop, source: Source) -> None:
    """Train with the first training loader's batch size, unless the job or the state says another."""
    launch = training_loop.context.launch if training_loop.context else None
    if (
        not training_loop.position.step
        and training_loop.adaptation is None
        and not (launch and launch.effective_batch_size)
    ):
        training_loop.position.effective_batch_size = source.batch_size


class _Steps:
    def __init__(
        self, training_loop: TrainingLoop, script_loop: ScriptLoop, loader: DataLoader[Any], shuffle: bool
    ) -> None:
        self._training_loop, self.script_loop, self._loader, self._shuffle = training_loop, script_loop, loader, shuffle
        self._drops = loader.drop_last
        samples, size = sample_count(loader.dataset), training_loop.position.effective_batch_size
        left_over = samples % size if self._drops and training_loop.adaptation is None and samples >= size else 0
        #: Number of samples of a pass.
        self.samples = samples - left_over

    def batches(self, feed: Feed) -> Iterator[Any]:
        order = self._in_order(self._training_loop.division.order(sample_count(self._loader.dataset)))
        with closing(self.script_loop.batches(feed, order, self._draw, self._further, self.samples)) as batches:
            yield from batches

    def _in_order(self, order: list[int]) -> list[int]:
        return (order if self._shuffle else list(range(len(order))))[: self.samples]

    def _further(self, order: list[int]) -> list[int] | None:
        training_loop = self._training_loop
        if training_loop.adaptation is None:
            return order if training_loop.position.cursor < self.samples else None
        now = training_loop.division.further(training_loop.position.epoch, order, self.samples, whole=self._drops)
        return now if now is order or now is None else self._in_order(now)

    def _draw(self, indices: list[int]) -> Any:
        return to_device(collate(self._loader.dataset, indices, self._loader.collate_fn), self._training_loop.device)

    def settle(self) -> None:
        self._training_loop.transitions.settle()


class _Done:
    """The end of a loop, due now or when the script goes on."""

    def __init__(self, training: Training, steps: _Steps, key: str) -> None:
        self._training, self._steps, self._key = training, steps, key

    def leave(self) -> None:
        self._steps.script_loop.leave(self._steps.samples)
        self.end()

    def end(self) -> None:
        self._steps.settle()
        self._training.end_loop(self._key, has_trained=True)


def evaluated(training: Training, source: Source, loader: DataLoader[Any], *, shuffle: bool) -> Iterator[Any]:
    """This replica's share of whole batches, and of those that a replica which died has left undone."""
    training_loop, key = training.training_loop, training.place.key
    assert training_loop is not None
    number = _EVALUATION - training_loop.position.operation
    order = _order(training_loop, sample_count(loader.dataset), shuffle=shuffle)
    spans = shares(len(order), source.batch_size, training_loop.world_size, drops_last=loader.drop_last)
    done = [False] * len(spans)
    mine = [place for place, (owner, _, _) in enumerate(spans) if owner == training_loop.rank]
    feed = Feed(
        loader.dataset,
        loader.collate_fn,
        training_loop.seed,
        reading_of(loader),
        training_loop.generators,
        training_loop.device,
    )
    try:
        while True:
            yield from _read(
                training_loop, feed, [MicroBatch(number, spans[at][1], order[slice(*spans[at][1:])]) for at in mine]
            )
            for at in mine:
                done[at] = True
            undone = training.agreed(done, "the end of a loop over an AdaptiveDataLoader")
            if not undone:
                break
            mine = undone[training_loop.rank :: training_loop.world_size]
    except GeneratorExit:
        training.place.left = lambda: training.end_loop(key, has_trained=False)
        raise
    finally:
        feed.close()
    training.end_loop(key, has_trained=False)


def _order(training_loop: TrainingLoop, samples: int, *, shuffle: bool) -> list[int]:
    return training_loop.division.order(samples) if shuffle else list(range(samples))


def _read(training_loop: TrainingLoop, feed: Feed, pieces: list[MicroBatch]) -> Iterator[Any]:
    feed.ahead = lambda: iter(pieces)
    for piece in pieces:
        with training_loop.generators.aside():
            seed_step(training_loop.seed, piece.step, piece.first)
            yield feed.take(piece)


def shares(samples: int, batch_size: int, ranks: int, *, drops_last: bool) -> list[tuple[int, int, int]]:
    """Divide the samples of an evaluation: (rank, first, last) of each span.

    Whole batches, the same number for each rank; of the last ones, where they are fewer than ranks, each gets a part.
    """
    whole = samples - samples % batch_size if drops_last and samples >= batch_size else samples
    round_samples = batch_size * ranks
    even = whole - whole % round_samples
    spans = [(at // batch_size % ranks, at, at + batch_size) for at in range(0, even, batch_size)]
    rest = [(rank, *share(even, whole, rank, ranks)) for rank in range(ranks)]
    return [*spans, *(span for span in rest if span[1] < span[2])]
