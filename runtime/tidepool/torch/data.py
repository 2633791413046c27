"""Samples: their division among steps and ranks, the random numbers of a step, and the batches.

The division is a pure function of (seed, epoch, step, virtual rank), never of how many ranks there were before: an
epoch is one permutation, a step the next `effective_batch_size` samples of it, a rank's share a contiguous span of it.

Batches are read in the training process, or ahead of time by workers of torch's DataLoader. Workers read ahead the
micro-batches that this rank will compute if no rank joins or leaves. When one does, their unused batches are dropped
and they start over. What a dataset draws while a micro-batch is read (augmentation) depends on the seed,
the step and the place in the step, so that it is the same with any number of workers, and with none.

On a GPU, batches come through pinned memory. The next one of the workers is taken while the sums of a step are made,
and copied on a stream beside the training's.
"""

import copy
import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, partial
from itertools import chain, dropwhile
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, default_collate, get_worker_info
from torch.utils.data._utils.pin_memory import pin_memory

from tidepool import procfs
from tidepool.json_sockets import tcp_sockets
from tidepool.refusal import Refusal
from tidepool.torch.state.randomness import Generators, mixed_seed, seed_reading

__all__ = [
    "Collate",
    "Feed",
    "MicroBatch",
    "NoSamplesError",
    "Part",
    "Reading",
    "collate",
    "epoch_order",
    "micro_batches",
    "parts",
    "reading_of",
    "sample_count",
    "share",
    "to_device",
]

Collate = Callable[[list[Any]], Any]

_HOST = torch.device("cpu")
#: Types of the leaves of a batch whose copies a stream can be told of, or that need none.
_PLAIN = (torch.Tensor, str, bytes, int, float, bool, type(None))


@dataclass(frozen=True)
class Part:
    """A unit of computation: a rank's share of a step, or in exactness `bitwise` a virtual rank's."""

    number: int
    #: Micro-batches, as spans of the step's samples. None for a part that has no samples.
    pieces: list[tuple[int, int]]


def epoch_order(seed: int, epoch: int, samples: int, passes: int = 0) -> list[int]:
    """passes: over the data in this epoch before this one; an adaptive training may need several."""
    generator = torch.Generator().manual_seed(mixed_seed(seed, epoch, 0x0E, *([passes] if passes else [])))
    order: list[int] = torch.randperm(samples, generator=generator).tolist()
    return order


def share(start: int, end: int, rank: int, size: int) -> tuple[int, int]:
    """Return the span of [start, end) that `rank` computes: spans differ by at most one sample, larger ones first."""
    quotient, remainder = divmod(end - start, size)
    first = start + rank * quotient + min(rank, remainder)
    return first, first + quotient + (1 if rank < remainder else 0)


def micro_batches(first: int, last: int, largest: int) -> list[tuple[int, int]]:
    """[first, last) cut into the fewest pieces of at most `largest`, as equal as possible."""
    count = -(-(last - first) // largest)
    return [share(first, last, piece, count) for piece in range(count)]


def parts(
    samples: int, place: tuple[int, int], virtual_ranks: int | None, largest: int | None, least: int = 1
) -> list[Part]:
    """Return the parts that one of the ranks computes. There is at least one, but for more ranks than virtual ranks.

    samples: of the step, or of a whole dataset. place: (which one, of how many). largest: samples of a micro-batch.
    least: samples of a part that is not empty, as far as the step has so many: the last parts stay empty otherwise.
    """
    if virtual_ranks is None:
        numbers, count = range(place[0], place[0] + 1), place[1]
    else:
        numbers, count = range(*share(0, virtual_ranks, *place)), virtual_ranks
    # Micro-batches of exactly `least` samples need shares that are multiples of it.
    unit = least if largest == least else 1
    filled = min(count, max(1, samples // least))
    spans = [(number, *_span(samples, number, filled, unit)) for number in numbers]
    return [Part(number, micro_batches(first, last, largest or max(1, last - first))) for number, first, last in spans]


def _span(samples: int, number: int, filled: int, unit: int) -> tuple[int, int]:
    """Return the span of a part, of which so many have samples; the last of them takes what is left of the units."""
    if number >= filled:
        return samples, samples
    first, last = share(0, samples // unit, number, filled)
    return first * unit, samples if number + 1 == filled else last * unit


def sample_count(dataset: Dataset[Any]) -> int:
    """Number of samples. Raises Refusal for a dataset without a length or without indices."""
    if isinstance(dataset, DataLoader):
        raise Refusal(
            "pass the dataset, not a DataLoader: the session itself shuffles and divides; session.steps(dataset, "
            "num_workers=..., collate_fn=...) reads as a DataLoader does"
        )
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise Refusal(
            "elastic training divides each epoch among a changing number of ranks and needs a dataset with a length "
            "and indices (a map-style dataset); an IterableDataset has neither"
        )
    length: int = len(dataset)
    if length == 0:
        raise Refusal("the training dataset is empty: check the folder in DATA_DIR")
    return length


class NoSamplesError(RuntimeError):
    """All samples of a batch are None, which a collate function leaves out, as damaged ones."""


def collate(dataset: Dataset[Any], indices: list[int], collate_fn: Collate | None = None) -> Any:
    """Read the samples as torch's DataLoader does, and make a batch of them."""
    together = getattr(dataset, "__getitems__", None)
    samples = together(indices) if together else [dataset[index] for index in indices]
    try:
        return (collate_fn or default_collate)(samples)
    except Exception as error:
        if all(sample is None for sample in samples):
            raise NoSamplesError(f"a collate function left out all samples of a batch: {error}") from None
        raise


def to_device(value: Any, device: torch.device) -> Any:
    """Return the value with its tensors on that device; containers and objects keep their types.

    An object that has a method `to` (a PackedSequence, a graph) moves itself. Containers and dataclasses are copied,
    as torch's pin_memory does; anything else stays as it is.
    """
    if isinstance(value, str | bytes | type):
        return value
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=device.type == "cuda" and value.is_pinned())
    if callable(getattr(value, "to", None)):
        return value.to(device)
    if isinstance(value, Mapping):
        return _with_items(value, {key: to_device(item, device) for key, item in value.items()})
    if isinstance(value, tuple):
        items = [to_device(item, device) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, list):
        clone = copy.copy(value)
        clone[:] = [to_device(item, device) for item in value]
        return clone
    if is_dataclass(value):
        moved: Any = copy.copy(value)
        for field in fields(value):
            if hasattr(value, field.name):
                object.__setattr__(moved, field.name, to_device(getattr(value, field.name), device))
        return moved
    return value


def _with_items(mapping: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if not isinstance(mapping, MutableMapping):
        return type(mapping)(items)  # type: ignore[call-arg]  # as torch's pin_memory makes one
    clone = copy.copy(mapping)
    clone.update(items)
    return clone


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch: the step, the place of its first sample in it, and the samples."""

    step: int
    first: int
    indices: list[int]


@dataclass(frozen=True)
class Reading:
    """Arguments of torch's DataLoader that say how samples are read."""

    workers: int = 0
    #: Micro-batches that each worker is ahead.
    ahead: int = 2
    #: Called in each worker with its number.
    begin_worker: Callable[[int], Any] | None = None
    #: Longest wait for a batch in seconds; 0: no limit.
    timeout: float = 0.0
    pin_memory: bool = False
    #: Keep the workers from one pass to the next.
    persistent: bool = False
    start_method: str = "fork"


def reading_of(loader: DataLoader[Any]) -> Reading:
    """Return how a DataLoader of the script reads. Raises Refusal for workers that cannot end with their rank."""
    context = loader.multiprocessing_context
    method = "fork" if context is None else context.get_start_method()
    if method == "forkserver":
        raise Refusal(
            "the DataLoader has multiprocessing_context='forkserver': its workers would be processes of another "
            "parent and outlive a process that is killed; use 'fork' (which is the default) or 'spawn'"
        )
    return Reading(
        workers=loader.num_workers,
        ahead=loader.prefetch_factor or Reading.ahead,
        begin_worker=loader.worker_init_fn,
        timeout=loader.timeout,
        pin_memory=loader.pin_memory,
        persistent=loader.persistent_workers,
        start_method=method,
    )


class Feed:
    """Hands out the batches of one dataset. `ahead()` iterates over this rank's pieces from the present step on."""

    def __init__(
        self,
        dataset: Dataset[Any],
        collate_fn: Collate | None,
        seed: int,
        reading: Reading,
        generators: Generators,
        device: torch.device = _HOST,
    ) -> None:
        if reading.workers < 0:
            raise ValueError(f"num_workers must not be negative, but is {reading.workers}")
        self._reader = _Reader(dataset, collate_fn, seed)
        self._pins = (reading.pin_memory and torch.accelerator.is_available()) or device.type == "cuda"
        self._reading = replace(reading, pin_memory=self._pins or reading.pin_memory)
        self._generators = generators
        self._device = device
        self._looks_ahead = _looks_ahead(device, reading)
        self._next: _NextBatch | None = None
        self._plan = _Plan()
        self._loader = self._worker_loader() if reading.workers else None
        self._batches: Any = None
        self.ahead: Callable[[], Iterator[MicroBatch]] = lambda: iter(())

    @property
    def workers(self) -> int:
        """Return the number of workers of this rank."""
        return self._reading.workers

    def prepare(self) -> None:
        """Start the workers, so that the first step does not wait for them."""
        if self._loader is not None and self._batches is None:
            self._open(self.ahead())

    def take(self, wanted: MicroBatch) -> Any:
        """Return the batch of that piece, which is one of `ahead`."""
        if self._loader is None:
            with self._generators.aside():
                batch = self._reader[wanted][1]
            return pin_memory(batch) if self._pins else batch  # type: ignore[no-untyped-call]
        following, self._next = self._next, None
        if following is not None and (following.error is not None or following.piece == wanted):
            return following.use()
        requested = opened = False
        while True:
            try:
                if self._batches is None:
                    self._open(self._from(wanted))
                    requested = opened = True
                piece, batch = next(self._batches)
            except StopIteration:  # all planned batches have been read
                self.pause()
                if opened:
                    raise RuntimeError("this step is over: iterate the one that session.steps() has yielded") from None
                continue
            if piece == wanted:
                return batch
            if not requested:
                self._plan.pieces = self._from(wanted)
                requested = True

    def look_ahead(self) -> None:
        """Take the next batch of the workers, and begin to copy it to the GPU; `take` has it, or the error."""
        if not self._looks_ahead or self._batches is None or self._next is not None:
            return
        try:
            piece, batch = next(self._batches)
            self._next = _NextBatch(piece, batch, self._device)
        except StopIteration:  # of the plan: `take` makes another one
            return
        except Exception as error:
            self._next = _NextBatch(None, None, self._device, error)

    def read(self, step: int, indices: list[int]) -> Any:
        """Read a batch that is not one of `ahead`, in the same process as those are."""
        piece, planned = MicroBatch(step, -1, indices), self.ahead
        self.ahead = lambda: chain([piece], planned())
        try:
            return self.take(piece)
        finally:
            self.ahead = planned

    def pause(self) -> None:
        """End the pass over the data, and drop unused batches. The workers end too, unless they are persistent."""
        self._next = None
        if self._reading.persistent:
            self._batches = None
        else:
            self.close()

    def close(self) -> None:
        """End the workers, and drop their unused batches."""
        self._next = None
        batches, self._batches = self._batches, None
        if self._loader is not None:
            batches = self._loader._iterator if batches is None else batches
            self._loader._iterator = None
        if batches is not None:
            batches._shutdown_workers()

    def _from(self, wanted: MicroBatch) -> Iterator[MicroBatch]:
        return dropwhile(lambda piece: piece != wanted, self.ahead())

    def _open(self, pieces: Iterator[MicroBatch]) -> None:
        assert self._loader is not None
        self._plan.pieces = pieces
        self._batches = iter(self._loader)

    def _worker_loader(self) -> DataLoader[Any]:
        reading = self._reading
        return DataLoader(
            self._reader,
            batch_size=None,
            sampler=self._plan,
            num_workers=reading.workers,
            prefetch_factor=reading.ahead,
            collate_fn=_as_it_is,
            worker_init_fn=partial(_begin_worker, os.getpid(), reading.begin_worker),
            multiprocessing_context=reading.start_method,
            generator=torch.Generator(),  # otherwise it would draw from the script's
            timeout=reading.timeout,
            pin_memory=reading.pin_memory,
            persistent_workers=reading.persistent,
        )


class _NextBatch:
    """A batch ahead of its time, on its way to the device; or the error that came in its place."""

    def __init__(
        self, piece: MicroBatch | None, batch: Any, device: torch.device, error: Exception | None = None
    ) -> None:
        self.piece, self.error = piece, error
        self._batch, self._device, self._event = batch, device, None
        # A batch with other objects may hide tensors from the streams, and is copied when it is used.
        if device.type == "cuda" and all(isinstance(leaf, _PLAIN) for leaf in tree_leaves(batch)):
            stream = _copying_stream(device)
            with torch.cuda.stream(stream):
                self._batch = to_device(batch, device)
                self._event = stream.record_event()

    def use(self) -> Any:
        """Return the batch for the training's stream. Raises the error."""
        if self.error is not None:
            raise self.error
        if self._event is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(self._event)
            for leaf in tree_leaves(self._batch):
                if isinstance(leaf, torch.Tensor):
                    leaf.record_stream(stream)
        return self._batch


def _looks_ahead(device: torch.device, reading: Reading) -> bool:
    """Return whether a batch is taken before its step: where a copy to the device takes time, and workers read."""
    return device.type == "cuda" and reading.workers > 0


@cache
def _copying_stream(device: torch.device) -> Any:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class _Plan(Sampler[MicroBatch]):
    """The pieces that workers read next; `pieces` may be exchanged at any time."""

    pieces: Iterator[MicroBatch] = iter(())

    def __iter__(self) -> Iterator[MicroBatch]:
        return self

    def __next__(self) -> MicroBatch:
        return next(self.pieces)


class _Reader(Dataset[tuple[MicroBatch, Any]]):
    """Reads pieces of a dataset, in the training process or a worker."""

    def __init__(self, dataset: Dataset[Any], collate_fn: Collate | None, seed: int) -> None:
        self.dataset, self._collate_fn, self._seed = dataset, collate_fn, seed

    def __getitem__(self, piece: MicroBatch) -> tuple[MicroBatch, Any]:
        seed_reading(self._seed, piece.step, piece.first)
        return piece, collate(self.dataset, piece.indices, self._collate_fn)


def _as_it_is(read: Any) -> Any:
    return read


def _begin_worker(rank_pid: int, begin: Callable[[int], Any] | None, worker: int) -> None:
    """A worker ends with its rank, and holds none of the rank's connections open: peers must see them end."""
    procfs.die_with_parent(rank_pid)
    procfs.set_role("reader")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor, _ in tcp_sockets():  # workers need their pipes, and local sockets to hand over shared memory
        os.dup2(null, descriptor)  # closed, and its number not used again while the copied objects name it
    os.close(null)
    info = get_worker_info()
    assert info is not None
    reader: Any = info.dataset
    object.__setattr__(info, "dataset", reader.dataset)  # the script's own, which its function opens files for
    if begin is not None:
        begin(worker)
