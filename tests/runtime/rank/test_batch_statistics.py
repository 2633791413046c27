"""BatchNorm where the last batch of an epoch leaves a rank, a virtual rank or a micro-batch too few samples."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from tidepool.torch import Session
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from tests.runtime.bits import different
from tests.runtime.replicas import on_ranks, own_loop

EPOCHS = 2


torch.manual_seed(2)
_NETWORK = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def parts(samples: int, batch: int) -> tuple[DataLoader[Any], nn.Module, torch.optim.Optimizer]:
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(
        torch.randn(samples, 6, generator=generator), torch.randint(0, 3, (samples,), generator=generator)
    )
    model = copy.deepcopy(_NETWORK)  # ranks are threads, with one generator among them
    return DataLoader(data, batch), model, torch.optim.SGD(model.parameters(), 0.1)


def prepared_loop(samples: int, batch: int, **options: Any) -> dict[str, Any]:
    (loader, model, optimizer), epochs, ours = own_loop(*parts(samples, batch), **options)
    for _ in epochs(range(EPOCHS)):
        for inputs, labels in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    assert ours.training_loop.position.step == EPOCHS * -(-samples // batch)
    return dict(model.state_dict())


def session_loop(samples: int, batch: int, **options: Any) -> dict[str, Any]:
    loader, model, optimizer = parts(samples, batch)
    session = Session(model, optimizer, effective_batch_size=batch, **options)
    object.__setattr__(session._training_loop.division, "order", lambda count: list(range(count)))
    for _ in session.epochs(EPOCHS):
        for step in session.steps(loader.dataset):
            for inputs, labels in step:
                step.backward(cross_entropy(model(inputs), labels))
    return dict(model.state_dict())


@pytest.mark.parametrize("loop", [prepared_loop, session_loop])
@pytest.mark.parametrize(
    ("ranks", "samples", "batch", "most"),
    [(2, 9, 6, None), (4, 11, 6, None), (3, 8, 6, None), (1, 11, 6, 4), (2, 14, 8, 2)],
    ids=["2 and 1", "2, 1, 1 and 1", "fewer pairs than ranks", "5 in pieces", "3 and 3 in pieces of 2"],
)
def test_no_rank_gets_a_single_sample(loop: Any, ranks: int, samples: int, batch: int, most: int | None) -> None:
    first, *others = on_ranks(ranks, lambda: loop(samples, batch, rank_batch_size=most))
    assert all(different(weights, first) == [] for weights in others)


@pytest.mark.parametrize("samples", [10, 13, 14, 16])
def test_bitwise_gives_the_same_bits_on_any_number_of_ranks(samples: int) -> None:
    """Batches of 8 in 4 virtual ranks: the last one has 2, 5, 6 and 8 samples."""
    exact = {"exactness": "bitwise", "virtual_ranks": 4}
    [expected] = on_ranks(1, lambda: session_loop(samples, 8, **exact))
    for ranks in (1, 2, 3):
        for weights in on_ranks(ranks, lambda: prepared_loop(samples, 8, **exact)):
            assert different(weights, expected) == []


def test_a_fabric_model_trains_a_short_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "runtime" / "compat" / "wmla"))
    from fabric_model import FabricModel

    def train() -> dict[str, Any]:
        loader, model, optimizer = parts(11, 6)
        fabric = FabricModel(model, lambda: (loader.dataset, None), cross_entropy, optimizer)
        fabric.train(2, 3, 2)
        return dict(model.state_dict())

    first, second = on_ranks(2, train)
    assert different(first, second) == []
