"""Samplers of the script's own: a pass takes what they yield, and a process that joins goes on with their state."""

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy
import pytest
import torch
from tidepool.refusal import Refusal
from tidepool.torch import epochs, prepare
from tidepool.torch.rank import prepared
from tidepool.torch.state.training_state import flatten, unflatten
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, Sampler

SAMPLES = 10
Data = list[torch.Tensor]
DATA: Data = list(torch.arange(SAMPLES).float().view(-1, 1))


@pytest.fixture(autouse=True)
def backward_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)


def training(loader: DataLoader[Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Prepare the loader in what is another process for it."""
    monkeypatch.setattr(prepared, "_prepared", None)
    model = nn.Linear(1, 1)
    return prepare(loader, model, torch.optim.SGD(model.parameters(), 0.1))[0]


def passes(loader: Any, number: int) -> list[list[float]]:
    return [[float(value) for batch in loader for value in batch] for _ in range(number)]


class Yields(Sampler[int]):
    """Yields the numbers that it is given, and has another length."""

    def __init__(self, numbers: Callable[[], Iterator[int]]) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        return self.numbers()


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("yielded", [7, 8, 23])
def test_a_pass_takes_what_the_sampler_yields(monkeypatch: pytest.MonkeyPatch, yielded: int, drop_last: bool) -> None:
    def loader() -> DataLoader[Any]:
        sampler = Yields(lambda: (number % SAMPLES for number in range(yielded)))
        return DataLoader(DATA, batch_size=4, sampler=sampler, drop_last=drop_last)  # type: ignore[arg-type]

    ours = training(loader(), monkeypatch)
    assert len(ours) == len(loader()) == (2 if drop_last else 3), "the sampler says how long it is"
    assert passes(ours, 2) == passes(loader(), 2)
    batches = iter(ours)
    next(batches)
    assert len(ours) == len(list(loader())), "in a pass it is known"


def test_a_sampler_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = training(DataLoader(DATA, sampler=Yields(lambda: (0 for _ in count()))), monkeypatch)  # type: ignore[arg-type]
    with pytest.raises(Refusal, match="a pass has to end"):
        next(iter(loader))


def test_passes_without_a_batch_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = training(DataLoader(DATA, batch_size=16, drop_last=True), monkeypatch)  # type: ignore[arg-type]
    with pytest.raises(Refusal, match="a pass has 10 samples, a batch 16"):
        next(iter(loader))


class Keeping(Sampler[int]):
    """Draws from something that it keeps."""

    def __init__(self, kept: Any, draw: Callable[[Any], int]) -> None:
        self.kept, self.draw, self.lengths, self.epoch = kept, draw, [3, 4], 0

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        return iter([self.epoch, *(self.draw(self.kept) for _ in range(5))])


class Saved(Sampler[int]):
    """Has a state_dict."""

    def __init__(self) -> None:
        self._place = [3]

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        self._place[0] += 1
        return iter([self._place[0]] * 6)

    def state_dict(self) -> dict[str, Any]:
        return {"place": self._place[0]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._place[0] = state["place"]


class Around(Sampler[int]):
    """Follows a sampler that it keeps."""

    def __init__(self, inner: Sampler[int]) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        return reversed(list(self.inner))


def rotated(numbers: Any) -> int:
    numbers[:] = [*numbers[1:], numbers[0]] if isinstance(numbers, list) else numpy.roll(numbers, -1)
    return int(numbers[0])


def by_generator() -> DataLoader[Any]:
    return DataLoader(DATA, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(4))  # type: ignore[arg-type]


def by(sampler: Callable[[], Any]) -> Callable[[], DataLoader[Any]]:
    return lambda: DataLoader(DATA, batch_size=4, sampler=sampler())  # type: ignore[arg-type]


LOADERS = {
    "torch": by_generator,
    "python": by(lambda: Keeping(random.Random(4), lambda kept: kept.randrange(SAMPLES))),
    "numpy": by(lambda: Keeping(numpy.random.default_rng(4), lambda kept: int(kept.integers(SAMPLES)))),
    "numpy's old one": by(lambda: Keeping(numpy.random.RandomState(4), lambda kept: int(kept.randint(SAMPLES)))),
    "a list": by(lambda: Keeping(list(range(SAMPLES)), rotated)),
    "an array": by(lambda: Keeping(numpy.arange(SAMPLES), rotated)),
    "a state": by(Saved),
    "another sampler": by(lambda: Around(RandomSampler(DATA, generator=torch.Generator().manual_seed(4)))),
}


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_it_yields_what_it_yields_in_plain_pytorch(
    monkeypatch: pytest.MonkeyPatch, loader: Callable[[], DataLoader[Any]]
) -> None:
    assert passes(training(loader(), monkeypatch), 3) == passes(loader(), 3)


@pytest.mark.parametrize("in_pass", [True, False])
@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_a_process_that_joins_goes_on_with_it(
    monkeypatch: pytest.MonkeyPatch, loader: Callable[[], DataLoader[Any]], in_pass: bool
) -> None:
    expected = passes(loader(), 4)
    first, tensors = training(loader(), monkeypatch), []
    for epoch in epochs(range(4)):
        batches = iter(first)
        if epoch == 2:
            if in_pass:
                next(batches)
            break
        list(batches)
    state = flatten(prepared.current().orders.state_dict(), tensors)

    joiner = training(loader(), monkeypatch)
    prepared.current().orders.load_state_dict(unflatten(state, tensors))
    assert passes(joiner, 2) == expected[2:]


def test_what_a_sampler_has_not_changed_stays_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that continues with more data has a longer sampler."""

    class Longer(Sampler[int]):
        def __init__(self, length: int) -> None:
            self.length, self.epoch = length, 0

        def __len__(self) -> int:
            return self.length

        def __iter__(self) -> Iterator[int]:
            self.epoch += 1
            return iter([self.epoch] * self.length)

    first = training(by(lambda: Longer(3))(), monkeypatch)
    assert passes(first, 2) == [[1.0] * 3, [2.0] * 3]
    prepared.current().orders.end()
    state = prepared.current().orders.state_dict()
    later = training(by(lambda: Longer(5))(), monkeypatch)
    prepared.current().orders.load_state_dict(state)
    assert passes(later, 1) == [[3.0] * 5]


def test_another_order_has_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = []
    for numbers in ([0, 1, 2], [0, 2, 1]):
        next(iter(training(DataLoader(DATA, sampler=numbers), monkeypatch)))  # type: ignore[arg-type]
        digests.append(prepared.current().script_loop.order_digest())
    assert digests[0] != digests[1]
