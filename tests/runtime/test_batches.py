"""Batches keep their types on the way to the model's device."""

from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest
import torch
from tidepool.torch import Session
from tidepool.torch.data import collate, to_device
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import Dataset

META = torch.device("meta")
ONES = torch.ones(2)
Pair = namedtuple("Pair", "inputs labels")


class Named(dict[str, Any]):
    title = "as the script calls it"


class Numbers(list[Any]):
    title = "as the script calls it"


@dataclass(frozen=True)
class Sample:
    inputs: torch.Tensor
    name: str = "a"
    count: int = field(default=0, init=False)


class Graph:
    """Moves itself, as graphs and tokenized texts do."""

    def __init__(self, nodes: torch.Tensor) -> None:
        self.nodes = nodes

    def to(self, device: torch.device) -> "Graph":
        return Graph(self.nodes.to(device))


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [tensor for item in value.values() for tensor in _tensors(item)]
    if isinstance(value, PackedSequence):
        return [value.data]
    if isinstance(value, tuple | list):
        return [tensor for item in value for tensor in _tensors(item)]
    if hasattr(value, "__dict__"):
        return [tensor for item in vars(value).values() for tensor in _tensors(item)]
    return []


@pytest.mark.parametrize(
    "batch",
    [
        Pair(ONES, ["a"]),
        (ONES, "b"),
        [ONES, (ONES, 3)],
        Numbers([ONES]),
        Named(inputs=ONES),
        OrderedDict(inputs=ONES),
        defaultdict(list, inputs=ONES),
        MappingProxyType({"inputs": ONES}),
        pack_sequence([ONES, torch.ones(1)]),
        Sample(ONES),
        Graph(ONES),
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_a_batch_keeps_its_type(batch: Any) -> None:
    moved = to_device({"batch": batch}, META)["batch"]
    assert type(moved) is type(batch)
    assert getattr(moved, "title", None) == getattr(batch, "title", None)
    assert [tensor.device for tensor in _tensors(moved)] == [META] * len(_tensors(batch)) != []
    assert all(tensor.device.type == "cpu" for tensor in _tensors(batch)), "the script's own stays"


@pytest.mark.parametrize("value", ["a", b"a", 3, None, {1, 2}, Sample, range(3)], ids=repr)
def test_what_has_no_tensors_stays(value: Any) -> None:
    assert to_device(value, META) is value


def test_a_session_moves_as_the_loop_does() -> None:
    model = nn.Linear(1, 1)
    session = Session(model, torch.optim.SGD(model.parameters(), 0.1), effective_batch_size=2)
    assert type(session.to_device(Pair(ONES, "a"))) is Pair


class Together(Dataset[Any]):
    """Reads many samples at once, as datasets over a network do."""

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("torch's DataLoader would not read them singly")

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [10 * index for index in indices]


def test_samples_are_read_together_where_the_dataset_can() -> None:
    assert collate(Together(), [1, 2]).tolist() == [10, 20]
