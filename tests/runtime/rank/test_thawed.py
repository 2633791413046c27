"""Parameters that a script thaws while it trains: several ranks train what one process would have trained."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tidepool.refusal import Refusal
from tidepool.torch import Session
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

from tests.runtime.replicas import on_ranks, one_thread, own_loop

EPOCHS, BATCH = 6, 8
GENERATOR = torch.Generator().manual_seed(1)
DATA = TensorDataset(torch.randn(40, 4, generator=GENERATOR), torch.randn(40, 2, generator=GENERATOR))


def network() -> nn.Sequential:
    """Two frozen layers, of two kinds of numbers, below one that is trained."""
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3).double(), nn.Tanh(), nn.Linear(3, 2))
    generator = torch.Generator().manual_seed(2)  # ranks are threads, with one generator among them
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    model[0].requires_grad_(False)
    model[2].requires_grad_(False)
    return model


def outputs(model: Any, features: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(model[4](model[3](model[2](model[1](model[0](features)).double())).float()))


def thaw(model: Any, epoch: int, batch: int) -> bool:
    """Thaw a layer in the middle of an epoch, and at the beginning of a later one another, which is frozen again."""
    if batch == 0:
        model[0].requires_grad_(epoch in (3, 4))
    if (epoch, batch) == (1, 2):
        model[2].requires_grad_(True)
    return (epoch, batch) in [(1, 2), (3, 0)]


def thaw_by_epochs(model: Any, epoch: int, batch: int) -> bool:
    model[2].requires_grad_(epoch > 0)
    return (epoch, batch) == (1, 0)


Thaw = Callable[[Any, int, int], bool]
#: Ways in which a script has a thawed layer updated: all are in its optimizer from the beginning, another optimizer
#: takes its place, or a group is added to it.
WAYS = ["all", "another", "group"]


def first_optimizer(model: Any, way: str) -> torch.optim.Optimizer:
    return torch.optim.SGD((model if way == "all" else model[4]).parameters(), 0.1, momentum=0.9)


def later_optimizer(model: Any, optimizer: torch.optim.Optimizer, way: str, layer: int) -> torch.optim.Optimizer:
    if way == "another":
        return torch.optim.Adam([one for one in model.parameters() if one.requires_grad], 0.02)
    if way == "group":
        optimizer.add_param_group({"params": model[layer].parameters(), "lr": 0.05})
    return optimizer


def trained(model: Any, loader: Any, epochs: Any, optimizer: torch.optim.Optimizer, way: str, thaw: Thaw) -> None:
    for epoch in epochs:
        for batch, (features, labels) in enumerate(loader):
            if thaw(model, epoch, batch):
                optimizer = later_optimizer(model, optimizer, way, 2 if epoch == 1 else 0)
            optimizer.zero_grad()
            mse_loss(outputs(model, features), labels).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()


def plain(way: str, thaw: Thaw = thaw) -> dict[str, torch.Tensor]:
    model = network()
    with one_thread():
        trained(model, DataLoader(DATA, BATCH), range(EPOCHS), first_optimizer(model, way), way, thaw)
    return dict(model.state_dict())


def prepared(way: str = "all", thaw: Thaw = thaw, **options: Any) -> Any:
    model = network()
    objects = DataLoader(DATA, BATCH), model, first_optimizer(model, way)
    (loader, model, optimizer), epochs, ours = own_loop(*objects, **options)
    trained(model, loader, epochs(range(EPOCHS)), optimizer, way, thaw)
    return dict(model.state_dict()) | {"thawed": ours.training_loop.position.thawed}


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_thawed_layers_are_trained_as_on_one_process(way: str, ranks: int) -> None:
    expected = plain(way)
    for found in on_ranks(ranks, lambda: prepared(way)):
        assert found.pop("thawed") == ([] if way == "all" else [0, 1, 2, 3])
        assert all(torch.allclose(found[name], tensor, atol=3e-6) for name, tensor in expected.items())


@pytest.mark.parametrize("how", [{"rank_batch_size": 3}, {"exactness": "bitwise", "virtual_ranks": 4}])
@pytest.mark.parametrize("way", WAYS)
def test_batches_in_pieces_thaw_at_the_beginning_of_an_epoch(way: str, how: dict[str, Any]) -> None:
    expected = plain(way, thaw_by_epochs)
    for found in [one for ranks in (1, 2) for one in on_ranks(ranks, lambda: prepared(way, thaw_by_epochs, **how))]:
        assert found.pop("thawed") == ([] if way == "all" or "exactness" in how else [2, 3])
        assert all(torch.allclose(found[name], tensor, atol=3e-6) for name, tensor in expected.items())


def test_a_layer_that_no_optimizer_has_counts_when_gradients_are_clipped() -> None:
    [one], [two, _] = (on_ranks(ranks, lambda: prepared("none")) for ranks in (1, 2))
    assert one.pop("thawed") == two.pop("thawed") == [0, 1, 2, 3]
    assert all(torch.allclose(two[name], tensor, atol=3e-6) for name, tensor in one.items())
    assert all(two[name].equal(tensor) for name, tensor in network()[2].state_dict(prefix="2.").items())


def test_ranks_that_thaw_different_layers_are_refused() -> None:
    numbers = iter([0, 2])

    def ranks() -> Any:
        number = next(numbers)

        def differently(model: Any, epoch: int, batch: int) -> bool:
            model[number].requires_grad_(epoch > 0)
            return False

        try:
            prepared("none", differently)
        except Refusal as error:
            return str(error)

    assert [str(end).partition(":")[0] for end in on_ranks(2, ranks)] == [
        "some processes train parameters that others have frozen"
    ] * 2


def test_a_session_takes_thawed_layers_along() -> None:
    def session() -> Any:
        model = network()
        made = Session(model, torch.optim.SGD(model[4].parameters(), 0.1), effective_batch_size=BATCH)
        for epoch in made.epochs(3):
            model[2].requires_grad_(epoch > 0)
            for step in made.steps(DATA):
                for features, labels in step:
                    step.backward(mse_loss(outputs(model, features), labels))
        assert made.position.thawed == [2, 3]
        assert model[2].weight.grad is not None
        return model[2].weight.grad

    [alone] = on_ranks(1, session)
    assert all(torch.allclose(found, alone) for found in on_ranks(3, session))
