"""A loop over an AdaptiveDataLoader: of the training, by steps, or of an evaluation, by shares."""

import copy
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import torch
from tidepool.torch.data import Feed, Piece, collate, moved, share, sized
from tidepool.torch.rank.script_loop import Loop
from tidepool.torch.rank.training_loop import Drive
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
    drive, loop, key = training.drive, training.loop, training.place.key
    assert drive is not None
    assert loop is not None
    _take_batch_size(drive, source)
    training.begin_training_loop()
    drive.layout.check()
    steps = _Steps(drive, loop, loader, shuffle)
    feed = Feed(loader.dataset, loader.collate_fn, drive.seed, loader.num_workers, drive.generators)
    done = _Done(training, steps, key)
    try:
        for batch in steps.batches(feed):
            held = copy.deepcopy(training.sums.state_dict()) if loop.stands_in else None
            yield batch
            if loop.has_summed:
                training.trained = source
            if held is not None:
                training.sums.load_state_dict(held)
            training.zero()
    except GeneratorExit:
        training.place.left = done.leave  # not here: nothing may be raised where a generator is closed
        raise
    finally:
        feed.close()
    loop.close_pass()
    done.end()


def _take_batch_size(drive: Drive, source: Source) -> None:
    """Train with the first training loader's batch size, unless the job or the state says another."""
    launch = drive.context.launch if drive.context else None
    if not drive.position.step and drive.adaptation is None and not (launch and launch.effective_batch_size):
        drive.position.effective_batch_size = source.batch_size


class _Steps:
    def __init__(self, drive: Drive, loop: Loop, loader: DataLoader[Any], shuffle: bool) -> None:
        self._drive, self.loop, self._loader, self._shuffle = drive, loop, loader, shuffle
        self._drops = loader.drop_last
        samples, size = sized(loader.dataset), drive.position.effective_batch_size
        left_over = samples % size if self._drops and drive.adaptation is None and samples >= size else 0
        #: Of a pass.
        self.samples = samples - left_over

    def batches(self, feed: Feed) -> Iterator[Any]:
        order = self._in_order(self._drive.division.order(sized(self._loader.dataset)))
        with closing(self.loop.batches(feed, order, self._draw, self._further, self.samples)) as batches:
            yield from batches

    def _in_order(self, order: list[int]) -> list[int]:
        return (order if self._shuffle else list(range(len(order))))[: self.samples]

    def _further(self, order: list[int]) -> list[int] | None:
        drive = self._drive
        if drive.adaptation is None:
            return order if drive.position.cursor < self.samples else None
        now = drive.division.further(drive.position.epoch, order, self.samples, whole=self._drops)
        return now if now is order or now is None else self._in_order(now)

    def _draw(self, indices: list[int]) -> Any:
        return moved(collate(self._loader.dataset, indices, self._loader.collate_fn), self._drive.device)

    def settle(self) -> None:
        self._drive.transitions.settle()


class _Done:
    """The end of a loop, due now or when the script goes on."""

    def __init__(self, training: Training, steps: _Steps, key: str) -> None:
        self._training, self._steps, self._key = training, steps, key

    def leave(self) -> None:
        self._steps.loop.leave(self._steps.samples)
        self.end()

    def end(self) -> None:
        self._steps.settle()
        self._training.end_loop(self._key, has_trained=True)


def evaluated(training: Training, source: Source, loader: DataLoader[Any], *, shuffle: bool) -> Iterator[Any]:
    """This replica's share of whole batches, and of those that a replica which died has left undone."""
    drive, key = training.drive, training.place.key
    assert drive is not None
    number = _EVALUATION - drive.position.operation
    order = _order(drive, sized(loader.dataset), shuffle=shuffle)
    spans = shares(len(order), source.batch_size, drive.world_size, drops_last=loader.drop_last)
    done = [False] * len(spans)
    mine = [place for place, (owner, _, _) in enumerate(spans) if owner == drive.rank]
    feed = Feed(loader.dataset, loader.collate_fn, drive.seed, loader.num_workers, drive.generators)
    try:
        while True:
            yield from _read(drive, feed, [Piece(number, spans[at][1], order[slice(*spans[at][1:])]) for at in mine])
            for at in mine:
                done[at] = True
            undone = training.agreed(done)
            if not undone:
                break
            mine = undone[drive.rank :: drive.world_size]
    except GeneratorExit:
        training.place.left = lambda: training.end_loop(key, has_trained=False)
        raise
    finally:
        feed.close()
    training.end_loop(key, has_trained=False)


def _order(drive: Drive, samples: int, *, shuffle: bool) -> list[int]:
    return drive.division.order(samples) if shuffle else list(range(samples))


def _read(drive: Drive, feed: Feed, pieces: list[Piece]) -> Iterator[Any]:
    feed.ahead = lambda: iter(pieces)
    for piece in pieces:
        with drive.generators.aside():
            seed_step(drive.seed, piece.step, piece.first)
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
