"""Averages of the weights that a script keeps by itself: a process that joins would begin them anew."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tidepool.refusal import Refusal
from tidepool.torch.rank.unprepared_models import UnpreparedModels
from torch import nn


class Average:
    """An average as scripts write it: a new tensor for each parameter in each update."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.shadow = {name: parameter.data.clone() for name, parameter in model.named_parameters()}

    def update(self) -> None:
        for name, parameter in self.model.named_parameters():
            self.shadow[name] = 0.9 * self.shadow[name] + 0.1 * parameter.data


class Stateful(Average):
    def state_dict(self) -> dict[str, torch.Tensor]:
        return self.shadow


class Listed:
    def __init__(self, model: nn.Module) -> None:
        self.model, self.shadow_params = model, [parameter.detach().clone() for parameter in model.parameters()]

    def update(self) -> None:
        for mean, parameter in zip(self.shadow_params, self.model.parameters(), strict=True):
            mean.sub_((mean - parameter.detach()) * 0.1)


class Trainer:
    def __init__(self, model: nn.Module) -> None:
        self.average = Average(model)

    def update(self) -> None:
        self.average.update()


class Beginning(Average):
    """The weights that a penalty pulls to."""

    def update(self) -> None:
        assert self.shadow


class Before(Average):
    """The weights before each update, to measure it by."""

    def update(self) -> None:
        for name, parameter in self.model.named_parameters():
            self.shadow[name].copy_(parameter.detach())


class After(Average):
    def update(self) -> None:
        self.shadow.update({name: parameter.detach().clone() for name, parameter in self.model.named_parameters()})


class Gradients(Average):
    def update(self) -> None:
        for name, parameter in self.model.named_parameters():
            assert parameter.grad is not None
            self.shadow[name] = parameter.grad.clone()


class Norms(Average):
    def update(self) -> None:
        self.shadow = {name: parameter.norm() for name, parameter in self.model.named_parameters()}


class Ema:
    """An average in a copy of the model, which is trained by nobody."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.copy = model, copy.deepcopy(model)

    @torch.no_grad()
    def update(self) -> None:
        for mean, parameter in zip(self.copy.parameters(), self.model.parameters(), strict=True):
            mean.lerp_(parameter, 0.1)


def train(kept: Callable[[nn.Module], Any], give: bool = False) -> int:
    """Train for five batches, and return how many were trained. kept: makes the object that follows the weights."""
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))
    average = kept(model)
    part = getattr(average, "average", None)
    parameters = {id(parameter) for parameter in model.parameters()}
    watched = UnpreparedModels(model, parameters, [average] if give else [])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    trained = 0
    for number in range(5):
        watched.look()
        optimizer.zero_grad()
        model(torch.full((4, 3), number + 1.0)).sum().backward()
        if isinstance(average, Before):
            average.update()
        assert part is None or part.shadow
        optimizer.step()
        if not isinstance(average, Before):
            average.update()
        trained += 1
    return trained


@pytest.mark.parametrize(
    ("kept", "name"), [(Average, "average.shadow"), (Stateful, "average.shadow"), (Listed, "average.shadow_params"),
                       (Trainer, "(average.average|part).shadow"), (Ema, "a model, Sequential,")]
)  # fmt: skip
def test_an_average_of_the_script_s_own_is_refused_by_its_name(kept: Callable[[nn.Module], Any], name: str) -> None:
    with pytest.raises(Refusal, match=f"(?s)changes .*{name}.*tidepool.torch.prepare"):
        train(kept)


@pytest.mark.parametrize("kept", [Stateful, Listed, Trainer])
def test_an_average_that_was_given_to_prepare_is_the_trainings(kept: Callable[[nn.Module], Any]) -> None:
    assert train(kept, give=True) == 5


@pytest.mark.parametrize("kept", [Beginning, Before, After, Gradients, Norms])
def test_copies_for_the_batch_under_way_are_the_script_s_affair(kept: Callable[[nn.Module], Any]) -> None:
    assert train(kept) == 5
