"""Models that compute activations again in the backward pass, in a loop of their own and in a Session."""

from typing import Any

import pytest
import torch
from tidepool.torch import Session
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from tests.runtime.replicas import on_ranks, own_loop

SAMPLES, BATCH, EPOCHS = 22, 8, 2


class Net(nn.Module):
    """A layer that is computed again; with `shared`, twice, so that its gradient comes in two portions."""

    def __init__(self, *, shared: bool, reentrant: bool) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self._times, self._reentrant = 2 if shared else 1, reentrant

    def forward(self, inputs: torch.Tensor) -> Any:
        hidden = torch.tanh(self.first(inputs))
        for _ in range(self._times):
            hidden = checkpoint(lambda given: torch.relu(self.middle(given)), hidden, use_reentrant=self._reentrant)
        return self.last(hidden)


torch.manual_seed(2)
_WEIGHTS = Net(shared=False, reentrant=False).state_dict()


def parts(shared: bool, reentrant: bool) -> tuple[DataLoader[Any], nn.Module, torch.optim.Optimizer]:
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(
        torch.randn(SAMPLES, 6, generator=generator), torch.randint(0, 3, (SAMPLES,), generator=generator)
    )
    model = Net(shared=shared, reentrant=reentrant)
    model.load_state_dict(_WEIGHTS)  # ranks are threads, with one generator among them
    return DataLoader(data, BATCH), model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def plain(shared: bool) -> dict[str, torch.Tensor]:
    loader, model, optimizer = parts(shared, reentrant=False)
    for _ in range(EPOCHS):
        for inputs, labels in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return dict(model.state_dict())


def prepared_loop(shared: bool, rank_batch_size: int | None) -> dict[str, torch.Tensor]:
    (loader, model, optimizer), epochs, _ = own_loop(*parts(shared, reentrant=True), rank_batch_size=rank_batch_size)
    for _ in epochs(range(EPOCHS)):
        for inputs, labels in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return dict(model.state_dict())


def in_order(samples: int, *_: Any) -> list[int]:
    return list(range(samples))


def session_loop(shared: bool, rank_batch_size: int | None) -> dict[str, torch.Tensor]:
    loader, model, optimizer = parts(shared, reentrant=True)
    session = Session(model, optimizer, effective_batch_size=BATCH, rank_batch_size=rank_batch_size)
    object.__setattr__(session._training_loop.division, "order", in_order)
    for _ in session.epochs(EPOCHS):
        for step in session.steps(loader.dataset):
            for inputs, labels in step:
                step.backward(cross_entropy(model(inputs), labels))
    return dict(model.state_dict())


@pytest.mark.parametrize("loop", [prepared_loop, session_loop])
@pytest.mark.parametrize("shared", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_reentrant_checkpoints_train_as_in_plain_torch(ranks: int, shared: bool, loop: Any) -> None:
    expected = plain(shared)
    for weights in on_ranks(ranks, lambda: loop(shared, 3 if ranks == 1 else None)):
        for name, tensor in expected.items():
            assert torch.allclose(weights[name], tensor, atol=1e-6), name
