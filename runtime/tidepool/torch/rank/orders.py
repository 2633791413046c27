"""The order in which a pass over a prepared loader takes the samples: the same on all ranks, also on one that joins.

A loader that shuffles without a generator follows the training's seed. Any other sampler is asked for its order. What
it draws from the global generators depends on the pass; what it keeps itself (a generator, a number of the epoch, a
list that it shuffles) belongs to the training's state. `ScriptLoop` compares the digests of the orders, so that a
sampler which follows something else ends the training instead of dividing different orders.
"""

import random
import zlib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, SequentialSampler

from tidepool.refusal import Refusal
from tidepool.torch.rank.batched_order import BatchedOrder
from tidepool.torch.rank.training_loop import TrainingLoop
from tidepool.torch.state.randomness import seed_step

__all__ = ["Orders", "has_own_batches", "sampler_of", "set_state", "state_of"]

#: Beside the parts of `update.py`: the random numbers of a sampler that draws an epoch's order.
_IN_ORDER = -5
#: A sampler that yields more samples than so many times its dataset has no end.
_MOST_REPETITIONS = 100


def has_own_batches(loader: DataLoader[Any]) -> bool:
    return loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler


def sampler_of(loader: DataLoader[Any]) -> Any:
    """Return what the loader takes the order of a pass from."""
    return loader.batch_sampler if has_own_batches(loader) else loader.sampler


class Orders:
    """The orders of a training's passes, and the state of the samplers that they come from.

    `training_loop` is set as soon as it is made: this object is a part of its state.
    """

    training_loop: TrainingLoop

    def __init__(self) -> None:
        #: Digest of the order of the pass under way.
        self.digest = 0
        #: Samplers that were prepared before the training began: processes that join have them, too.
        self._samplers: list[Any] = []
        #: State of the samplers when they were prepared, by id. What has not changed since is not carried: a training
        #: that continues with other data has samplers of another length.
        self._prepared: dict[int, dict[str, Any]] = {}
        #: State of the sampler when the pass under way began; None between passes.
        self._at_pass: dict[str, Any] | None = None

    def add(self, sampler: Any, *, is_early: bool) -> None:
        """Note a sampler. is_early: the training has not begun."""
        self._prepared[id(sampler)] = state_of(sampler)
        if is_early:
            self._samplers.append(sampler)

    def begin(self, loader: DataLoader[Any]) -> list[int]:
        """Return the order of the pass that begins, or that is under way on the other ranks."""
        training_loop, sampler = self.training_loop, sampler_of(loader)
        if type(sampler) is SequentialSampler:
            order = list(sampler)
        elif _is_plain_shuffle(sampler):
            order = training_loop.division.order(_length(sampler))
        else:
            order = self._drawn(loader)
        if isinstance(order, BatchedOrder):
            training_loop.position.effective_batch_size = order.largest
        elif loader.drop_last:
            order = _whole_batches(order, training_loop.position.effective_batch_size)
        digested = [*order, *order.ends] if isinstance(order, BatchedOrder) else order
        self.digest = zlib.crc32(numpy.asarray(digested, dtype=numpy.int64).tobytes())
        return order

    def end(self) -> None:
        """The pass is over for good."""
        self._at_pass = None

    def _drawn(self, loader: DataLoader[Any]) -> list[int]:
        training_loop, sampler, position = self.training_loop, sampler_of(loader), self.training_loop.position
        if self._at_pass is not None:
            self._set(sampler, self._at_pass)
        else:
            self._at_pass = self._changed(sampler)
        with training_loop.generators.aside():
            seed_step(training_loop.seed, position.epoch * 1009 + position.passes, _IN_ORDER)
            if loader.generator is not None:  # torch's DataLoader draws a seed for its workers before each pass
                torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
            samples = max(_length(loader.dataset), _length(sampler))
            return _batches_of(sampler, samples) if has_own_batches(loader) else _epoch_of(sampler, samples)

    def state_dict(self) -> dict[str, Any]:
        return {"at_pass": self._at_pass, "now": [self._changed(sampler) for sampler in self._samplers]}

    def _changed(self, sampler: Any) -> dict[str, Any]:
        return _difference(state_of(sampler), self._prepared[id(sampler)])

    def _set(self, sampler: Any, changed: dict[str, Any]) -> None:
        set_state(sampler, {**self._prepared[id(sampler)], **changed})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._at_pass = state["at_pass"]
        for sampler, now in zip(self._samplers, state["now"], strict=False):
            self._set(sampler, now)


def _whole_batches(order: list[int], size: int) -> list[int]:
    if 0 < len(order) < size:
        raise Refusal(
            f"the prepared DataLoader has no batch: a pass has {len(order)} samples, a batch {size}, and drop_last "
            "leaves out smaller ones. Use more samples, a smaller batch_size, or drop_last=False"
        )
    return order[: len(order) - len(order) % size]


def _is_plain_shuffle(sampler: Any) -> bool:
    return (
        type(sampler) is RandomSampler
        and sampler.generator is None
        and not sampler.replacement
        and len(sampler) == len(sampler.data_source)
    )


def _length(item: Any) -> int:
    return len(item) if hasattr(item, "__len__") else 0


def _epoch_of(sampler: Any, samples: int) -> list[int]:
    order = list(islice(sampler, _MOST_REPETITIONS * samples + 1))
    _check_end(len(order), samples)
    return order


def _batches_of(sampler: Any, samples: int) -> BatchedOrder:
    batches = [[*batch] for batch in islice(sampler, _MOST_REPETITIONS * samples + 1)]
    if not all(batches):
        raise Refusal("the batch_sampler of the prepared DataLoader has yielded a batch without samples: leave it out")
    _check_end(len(batches), samples)
    return BatchedOrder(batches)


def _check_end(count: int, samples: int) -> None:
    if count > _MOST_REPETITIONS * samples:
        raise Refusal(
            f"the sampler of the prepared DataLoader has yielded more than {_MOST_REPETITIONS} times its "
            f"{samples} samples: a pass has to end, so let the sampler yield the samples of one epoch"
        )


# --- the state of a sampler ---


def state_of(item: Any) -> dict[str, Any]:
    """Return the state of a sampler that `set_state` can set: generators, numbers, texts and lists of numbers."""
    if hasattr(item, "state_dict") and hasattr(item, "load_state_dict"):
        return {"": item.state_dict()}
    return {name: kept for name, value in _kept(item) if (kept := _packed(value)) is not None}


def set_state(item: Any, state: Mapping[str, Any]) -> None:
    if hasattr(item, "state_dict") and hasattr(item, "load_state_dict"):
        item.load_state_dict(state[""])
        return
    for name, value in _kept(item):
        if name in state:
            unpacked = _unpacked(value, state[name])
            if unpacked is not value:
                setattr(item, name, unpacked)


def _difference(state: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of the state that are not as before."""
    return {name: kept for name, kept in state.items() if not _is_alike(kept, before.get(name))}


def _is_alike(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.equal(other)
    if isinstance(one, dict):
        same_keys = isinstance(other, dict) and one.keys() == other.keys()
        return same_keys and all(_is_alike(value, other[key]) for key, value in one.items())
    return type(one) is type(other) and bool(one == other)


def _kept(item: Any) -> Iterator[tuple[str, Any]]:
    yield from list(getattr(item, "__dict__", {}).items())


def _packed(value: Any) -> Any:
    """Return the value as what crosses a resize; None for what is left out."""
    if isinstance(value, bool | int | float | str):
        return {"plain": value}
    if isinstance(value, torch.Generator):
        return {"torch": value.get_state()}
    if isinstance(value, random.Random):
        return {"python": value.getstate()}
    if isinstance(value, numpy.random.RandomState):
        return {"numpy": _without_arrays(value.get_state(legacy=False))}
    if isinstance(value, numpy.random.Generator):
        return {"numpy": _without_arrays(value.bit_generator.state)}
    if isinstance(value, numpy.ndarray) and value.dtype.kind in "iub":
        return {"array": _without_arrays(value)}
    if isinstance(value, list) and value and all(type(number) is int for number in value):
        return {"list": torch.tensor(value)}
    if isinstance(value, Sampler):
        return {"sampler": state_of(value)}
    return None


def _unpacked(value: Any, kept: dict[str, Any]) -> Any:
    """Return the value with the state that was kept of it: the same object, if it can be changed."""
    [(kind, state)] = kept.items()
    if value is None:  # made by the sampler's first pass, which this process has not begun
        return {"plain": state}.get(kind)
    if kind == "torch":
        value.set_state(state.cpu())
    elif kind == "python":
        value.setstate(state)
    elif kind == "numpy" and isinstance(value, numpy.random.RandomState):
        value.set_state(_with_arrays(state))
    elif kind == "numpy":
        value.bit_generator.state = _with_arrays(state)
    elif kind == "array":
        value[...] = _with_arrays(state).reshape(value.shape)
    elif kind == "list":
        value[:] = state.tolist()
    elif kind == "sampler":
        set_state(value, state)
    else:
        return state
    return value


def _without_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_arrays(item) for key, item in value.items()}
    if isinstance(value, numpy.ndarray):
        return {"dtype": str(value.dtype), "bytes": torch.from_numpy(value.copy().reshape(-1).view(numpy.uint8))}
    return value.item() if isinstance(value, numpy.generic) else value


def _with_arrays(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value.keys() == {"dtype", "bytes"}:
        return value["bytes"].cpu().numpy().view(value["dtype"])
    return {key: _with_arrays(item) for key, item in value.items()}
