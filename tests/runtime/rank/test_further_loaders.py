"""DataLoaders that a loop draws from beside the prepared one: the same batches in each process, also after a join."""

import random
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest
import torch
from tidepool.refusal import Refusal
from tidepool.torch import prepare
from tidepool.torch.rank import prepared
from tidepool.torch.state.training_state import flatten, unflatten
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

DATA: Any = list(torch.arange(12).float().view(-1, 1))


@pytest.fixture(autouse=True)
def backward_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)


class Stream(IterableDataset[torch.Tensor]):
    """Draws its samples at random."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.tensor([random.random()]) for _ in range(24))


FURTHER: dict[str, Callable[[], DataLoader[Any]]] = {
    "in order": lambda: DataLoader(DATA, batch_size=2),
    "shuffled": lambda: DataLoader(DATA, batch_size=2, shuffle=True),
    "by a generator": lambda: DataLoader(DATA, batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(3)),
    "by workers": lambda: DataLoader(DATA, batch_size=2, shuffle=True, num_workers=1, persistent_workers=True),
    "a stream": lambda: DataLoader(Stream(), batch_size=2),
}


class Process:
    """One process of the training: its loaders, and what it draws."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, further: DataLoader[Any], **how: Any) -> None:
        monkeypatch.setattr(prepared, "_prepared", None)
        monkeypatch.setattr(torch.autograd, "backward", vars(torch.autograd)["backward"])
        self.model = nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        loader = DataLoader(DATA, batch_size=2)
        self.loader, self.further, *_ = prepare(loader, further, self.model, self.optimizer, **how)
        self.training = prepared.current()

    def train(self, inputs: torch.Tensor) -> None:
        self.model(inputs).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def drawn(self, pairs: Iterator[tuple[torch.Tensor, torch.Tensor]], most: int | None = None) -> list[list[float]]:
        drawn = []
        for inputs, other in pairs:
            drawn.append(other.flatten().tolist())
            self.train(inputs)
            if len(drawn) == most:
                break
        return drawn

    def zipped(self, most: int | None = None) -> list[list[float]]:
        return self.drawn(zip(self.loader, self.further, strict=False), most)


@pytest.mark.parametrize("name", FURTHER)
def test_a_process_that_joins_draws_what_the_others_draw(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    alone = Process(monkeypatch, FURTHER[name]())
    expected = alone.zipped()
    assert len(expected) == 6

    first = Process(monkeypatch, FURTHER[name]())
    pairs = iter(zip(first.loader, first.further, strict=False))
    assert [other.flatten().tolist() for _, other in (next(pairs) for _ in range(4))] == expected[:4]
    tensors: list[torch.Tensor] = []
    first.training.script_loop.close()
    first.training.further_loaders.mark()
    state = flatten(first.training.further_loaders.state_dict(), tensors)
    places = first.training.further_loaders.places()

    joiner = Process(monkeypatch, FURTHER[name]())
    joiner.training.further_loaders.load_state_dict(unflatten(state, tensors))
    joiner.training.training_loop.position.cursor = 8
    assert joiner.zipped() == expected[4:]
    assert joiner.training.further_loaders.places() == []
    assert [drawn for _, drawn in places] == [4]


def test_what_was_drawn_beside_a_repeated_batch_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch, FURTHER["shuffled"]())
    expected, further = Process(monkeypatch, FURTHER["shuffled"]()).zipped(), process.training.further_loaders
    monkeypatch.setattr(prepared, "_prepared", process.training)
    drawn = []
    for number, (inputs, other) in enumerate(zip(process.loader, process.further, strict=False)):
        drawn.append(other.flatten().tolist())
        if number == 2:
            further.repeat()
            assert next(iter_of(further)).flatten().tolist() == drawn[-1]
        inputs.sum()
    assert drawn == expected


def iter_of(further: Any) -> Any:
    [iteration] = [one for loader in further._loaders.values() for one in loader.live()]
    return iteration


def test_an_evaluation_in_the_body_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch, FURTHER["in order"]())
    for inputs in process.loader:
        process.train(inputs)
        assert len(list(process.further)) == 6
        assert next(iter(process.further)).tolist() == [[0.0], [1.0]]
        assert process.training.further_loaders.places() == []
    assert process.training.further_loaders.state_dict() == {"first call, number 2": []}
    assert isinstance(process.further, DataLoader)


def forever(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def test_an_iteration_may_go_on_over_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch, DataLoader(DATA, batch_size=4))
    beside = forever(process.further)
    drawn = [process.drawn((inputs, next(beside)) for inputs in process.loader) for _ in range(2)]
    assert [first for batches in drawn for first, *_ in batches] == [0, 4, 8] * 4


def turned(process: Process) -> None:
    process.drawn((inputs, other) for other, inputs in zip(process.further, process.loader, strict=False))


def cycled(process: Process) -> None:
    process.drawn(zip(process.loader, cycle(process.further), strict=False))


@pytest.mark.parametrize(
    ("wrong", "how", "words"),
    [
        (turned, {}, "name the prepared loader first"),
        (cycled, {}, "itertools.cycle"),
        (Process.zipped, {"rank_batch_size": 1}, "several pieces"),
    ],
)
def test_refused(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Process], object], how: dict[str, Any], words: str
) -> None:
    with pytest.raises(Refusal, match=words):
        wrong(Process(monkeypatch, FURTHER["in order"](), **how))
