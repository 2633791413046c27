"""Further DataLoaders that a loop draws from beside the prepared one, as `zip(loader, unlabelled)` does.

They are not divided: each rank draws whole batches, the same ones everywhere. So an iteration that goes on from one
batch of the training to the next belongs to the training's state: what it draws depends on the place at which it was
begun, and a process that joins goes on with it where the others are. When a batch of the training is repeated after a
death, so is what was drawn beside it. An iteration outside of the training's batches, such as an evaluation between two
epochs, is left alone.
"""

import copy
import gc
import weakref
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, cycle, islice
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, IterableDataset

from tidepool.refusal import Refusal
from tidepool.torch.rank.orders import set_state, state_of
from tidepool.torch.rank.training_loop import TrainingLoop
from tidepool.torch.state.randomness import mixed_seed, seed_all
from tidepool.torch.state.training_state import Position

__all__ = ["FurtherLoaders", "release"]

_BESIDE = 0xBE51
#: Attribute of an adopted loader: the class that it had.
_KIND = "_tidepool_kind"


class Loop(Protocol):
    """The loop over the prepared loader, beside whose batches the script draws others."""

    training_loop: TrainingLoop
    has_pieces: bool
    #: True while a process that joins repeats what the others have done, in batches of which nothing comes.
    pretends: bool

    @property
    def in_batch(self) -> bool: ...


@dataclass(frozen=True)
class _Origin:
    """The beginning of an iteration, from which any process can repeat it."""

    seed: int
    #: State of the sampler at that time.
    sampler: dict[str, Any]


class FurtherLoaders:
    """The iterations of the script's further loaders, a part of the training's state.

    `script_loop` is set as soon as it is made: this object is a part of its training's state.
    """

    script_loop: Loop

    def __init__(self) -> None:
        self._loaders: dict[str, _Further] = {}
        #: State of loaders that this process has not made yet.
        self._expected: dict[str, Any] = {}

    def adopt(self, name: str, loader: DataLoader[Any]) -> None:
        """Let the loader's iterations be followed: its class becomes one that is derived from it.

        A loader that is made anew in each epoch takes the place of the earlier one with its name.
        """
        release(loader)
        kind = type(loader)
        further = self._loaders[name] = _Further(self, name)
        body = {"__iter__": lambda self: _Iteration(further, self, kind), "__module__": kind.__module__, _KIND: kind}
        loader.__class__ = type(kind.__name__, (kind,), body)
        if name in self._expected:
            further.load_state_dict(self._expected.pop(name))

    def mark(self) -> None:
        """The training has come to a boundary."""
        for further in self._loaders.values():
            for iteration in further.live():
                iteration.mark()

    def repeat(self) -> None:
        """Go back to the newest boundary, from which on the training's batches are handed out again."""
        for further in self._loaders.values():
            further.begun = 0
            for iteration in further.live():
                iteration.repeat()

    def places(self) -> list[tuple[int, int]]:
        """Return what is the same on all ranks: where the iterations are that go on from batch to batch."""
        if not self._loaders:
            return []
        position = self.script_loop.training_loop.position
        now = position.epoch, position.passes
        live = [iteration for further in self._loaders.values() for iteration in further.live()]
        return [(one.origin.seed, one.drawn) for one in live if one.origin and one.goes_on and one.last_pass == now]

    def state_dict(self) -> dict[str, Any]:
        return {**self._expected, **{name: further.state_dict() for name, further in self._loaders.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._expected = {name: one for name, one in state.items() if name not in self._loaders}
        for name, further in self._loaders.items():
            further.load_state_dict(state.get(name, []))


def release(loader: DataLoader[Any]) -> None:
    """Give the loader its own class again, if it was adopted."""
    loader.__class__ = getattr(loader, _KIND, type(loader))


class _Further:
    """One of the further loaders."""

    def __init__(self, all_of_them: FurtherLoaders, name: str) -> None:
        self.all_of_them, self.name = all_of_them, name
        #: Iterations that other ranks have begun, and their numbers of batches, for this one to go on with.
        self.awaited: list[tuple[_Origin, int]] = []
        #: Iterations begun beside the batch at `_place`.
        self.begun = 0
        self._place: tuple[int, ...] = ()
        self._iterations: list[weakref.ref[_Iteration]] = []
        #: A batch for bodies of which nothing comes.
        self._sample: list[Any] = []
        #: Whether it is known that the script does not repeat an iteration by itertools.cycle.
        self.is_checked = False

    def add(self, iteration: "_Iteration") -> None:
        self._iterations = [one for one in self._iterations if one() is not None]
        self._iterations.append(weakref.ref(iteration))

    def live(self) -> list["_Iteration"]:
        """Return the iterations that the script may go on with, in the order in which they were made."""
        return [one for reference in self._iterations if (one := reference()) is not None and not one.is_over]

    def next_origin(self, loader: DataLoader[Any]) -> _Origin:
        """Return how an iteration begins beside the present batch of the training."""
        training_loop = self.all_of_them.script_loop.training_loop
        place = _place(training_loop.position)
        self.begun = self.begun + 1 if place == self._place else 1
        self._place = place
        seed = mixed_seed(training_loop.seed, *place, self.begun, zlib.crc32(self.name.encode()), _BESIDE)
        return _Origin(seed, state_of(_index_sampler(loader)))

    def sample(self, loader: DataLoader[Any], kind: type[DataLoader[Any]]) -> Any:
        """Return some batch, without a trace in the sampler. Raises StopIteration for an empty loader."""
        if not self._sample:
            state = state_of(_index_sampler(loader))
            with self.all_of_them.script_loop.training_loop.generators.aside():
                self._sample.append(next(_begun(loader, kind, _Origin(0, state), 0)))
            set_state(_index_sampler(loader), state)
        return self._sample[0]

    def state_dict(self) -> list[dict[str, Any]]:
        begun = [one for one in self.live() if one.origin is not None]
        newest = max((one.last_pass for one in begun if one.last_pass), default=None)
        going_on = [(one.origin, one.at_boundary) for one in begun if one.last_pass in (None, newest)]
        return [
            {"seed": origin.seed, "sampler": origin.sampler, "drawn": drawn}
            for origin, drawn in [*going_on, *self.awaited]
            if origin is not None and drawn
        ]

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        self.awaited = [(_Origin(one["seed"], one["sampler"]), one["drawn"]) for one in state]
        for iteration in self.live():
            iteration.take_awaited()


class _Iteration:
    """An iteration over a further loader."""

    def __init__(self, further: _Further, loader: DataLoader[Any], kind: type[DataLoader[Any]]) -> None:
        self._further, self._loader, self._kind = further, loader, kind
        self._batches: Iterator[Any] | None = None
        #: Beginning of the iteration beside a batch of the training; None for one begun elsewhere.
        self.origin: _Origin | None = None
        self.drawn = self.at_boundary = 0
        #: Batches since the newest boundary.
        self._recent: list[Any] = []
        #: Place of the training's batch beside which it was begun.
        self._begun_at: tuple[int, ...] = ()
        #: Whether the script has drawn from it beside several batches.
        self.goes_on = False
        #: Pass over the training's data in which the script has drawn from it last; None: only other ranks know.
        self.last_pass: tuple[int, int] | None = None
        self.is_over = False
        #: Whether the iteration was made in a body of which nothing comes.
        self._is_pretended = further.all_of_them.script_loop.pretends
        further.add(self)
        if not self._is_pretended:
            self.take_awaited()

    def __iter__(self) -> "_Iteration":
        return self

    def __next__(self) -> Any:
        script_loop = self._further.all_of_them.script_loop
        if script_loop.pretends and self._batches is None:
            return self._next_pretended()
        if not script_loop.in_batch:
            return self._next_alone()
        position = script_loop.training_loop.position
        if self._batches is None:
            with script_loop.training_loop.generators.aside():
                self._begin_beside(_place(position))
        self.goes_on = self.goes_on or _place(position) != self._begun_at
        self._check(has_pieces=script_loop.has_pieces)
        self.last_pass = position.epoch, position.passes
        with script_loop.training_loop.generators.aside():
            batch = self._next_beside()
        self.drawn += 1
        return batch

    def take_awaited(self) -> None:
        """Go on with an iteration of the other ranks."""
        if self.origin is None and self._batches is None and self._further.awaited:
            self.origin, self.drawn = self._further.awaited.pop(0)
            self.at_boundary, self.goes_on = self.drawn, True

    def mark(self) -> None:
        del self._recent[: self.drawn - self.at_boundary]
        self.at_boundary = self.drawn

    def repeat(self) -> None:
        self.drawn = self.at_boundary

    def _begin_beside(self, place: tuple[int, ...]) -> None:
        self.is_over = False
        self.take_awaited()
        if self.origin is None:
            self.origin, self._begun_at = self._further.next_origin(self._loader), place
        self._batches = _begun(self._loader, self._kind, self.origin, self.drawn)

    def _next_beside(self) -> Any:
        assert self.origin is not None
        assert self._batches is not None
        if self.drawn < self.at_boundary + len(self._recent):
            return self._recent[self.drawn - self.at_boundary]
        seed_all(mixed_seed(self.origin.seed, self.drawn + 1))
        batch = self._drawn_from(self._batches)
        self._recent.append(batch)
        return batch

    def _next_pretended(self) -> Any:
        """Return some batch; an iteration that the body itself has made ends after one, as an evaluation does."""
        if self.is_over:
            raise StopIteration
        self.is_over = self._is_pretended
        return self._further.sample(self._loader, self._kind)

    def _next_alone(self) -> Any:
        if self._batches is None:
            self._batches = self._kind.__iter__(self._loader)
        elif self.origin is not None:
            raise Refusal(
                f"{self._words()} goes on outside of the loop over the prepared loader, in which it was begun: begin "
                "another one there"
            )
        return self._drawn_from(self._batches)

    def _drawn_from(self, batches: Iterator[Any]) -> Any:
        try:
            return next(batches)
        except StopIteration:
            self.is_over = True
            raise

    def _check(self, *, has_pieces: bool) -> None:
        """Raise Refusal for an iteration from batch to batch that another process could not go on with."""
        if self.origin is None:
            raise Refusal(
                f"{self._words()} was begun before the loop over the prepared loader, and goes on in it, where a "
                "process that joins could not follow: begin it in the body of the loop, or name the prepared loader "
                "first, as in zip(loader, other)"
            )
        if not self.goes_on:
            return
        if has_pieces:
            raise Refusal(
                f"{self._words()} goes on from batch to batch, and this process computes each batch in several pieces: "
                "use neither rank_batch_size nor exactness bitwise with it"
            )
        if not self._further.is_checked and any(isinstance(one, cycle) for one in gc.get_referrers(self)):
            raise Refusal(
                f"{self._words()} is repeated by itertools.cycle, which keeps the batches of its first round, and a "
                "process that joins has not seen those: write a function with `while True: yield from loader` instead, "
                "and iterate over what it returns"
            )
        self._further.is_checked = True

    def _words(self) -> str:
        return f"the iteration over a further DataLoader of tidepool.torch.prepare ({self._further.name})"


def _place(position: Position) -> tuple[int, int, int]:
    return position.epoch, position.passes, position.cursor


class _Rest:
    """The indices of a sampler from some batch on. Their order is drawn as soon as an iterator is made."""

    def __init__(self, indices: Iterable[Any], skipped: int) -> None:
        self._indices, self._skipped = indices, skipped

    def __len__(self) -> int:
        return len(self._indices)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        rest = iter(self._indices)
        first = list(islice(rest, self._skipped + 1))
        return chain(first[self._skipped :], rest)


def _index_sampler(loader: DataLoader[Any]) -> Any:
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


def _begun(loader: DataLoader[Any], kind: type[DataLoader[Any]], origin: _Origin, skipped: int) -> Iterator[Any]:
    """Begin an iteration as at its origin, and skip so many batches."""
    seed_all(origin.seed)
    if isinstance(loader.dataset, IterableDataset):
        return _read_on(kind.__iter__(loader), origin.seed, skipped)
    sampler = _index_sampler(loader)
    set_state(sampler, origin.sampler)
    if loader.generator is not None:  # torch's DataLoader draws a seed for its workers before each order
        torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
    attribute = "sampler" if loader.batch_sampler is None else "batch_sampler"
    copied = copy.copy(loader)
    copied.__class__ = kind
    copied.__dict__ |= {attribute: _Rest(sampler, skipped), "generator": None, "_iterator": None}
    return kind.__iter__(copied)


def _read_on(batches: Iterator[Any], seed: int, skipped: int) -> Iterator[Any]:
    """Read the batches to be skipped as the other ranks did: what they draw at random leads to the next ones."""
    for number in range(skipped):
        seed_all(mixed_seed(seed, number + 1))
        next(batches)
    return batches
