"""Tests of the order of a gradient's numbers in memory: kernels are slow where it differs from the parameter's."""

import pytest
import torch
from tidepool.torch.comm.process_group import Group
from tidepool.torch.comm.reducer import SumReducer
from torch import nn


def gradients(model: nn.Module, reducer: SumReducer, inputs: torch.Tensor) -> list[torch.Tensor]:
    reducer.begin(Group(1, 0, 1), [0])
    reducer.expect_last_backward()
    model(inputs).square().mean().backward()
    reducer.finish()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def test_a_gradient_has_the_layout_of_its_parameter() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3))
    inputs = torch.randn(2, 3, 8, 8)
    plain = [gradient.clone() for gradient in gradients(model, SumReducer(model.parameters()), inputs)]
    for parameter in model.parameters():
        parameter.grad = None
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    reducer = SumReducer(model.parameters())
    found = gradients(model, reducer, inputs.to(memory_format=torch.channels_last))
    for parameter, gradient, before in zip(model.parameters(), found, plain, strict=True):
        assert gradient.stride() == parameter.stride()
        assert torch.allclose(gradient, before, atol=1e-6)


@pytest.mark.filterwarnings("ignore:grad and param do not obey")
def test_the_layout_stays_that_of_the_beginning_when_parameters_thaw() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3))
    model[1].requires_grad_(False)
    reducer = SumReducer(model.parameters())
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model[1].requires_grad_(True)
    reducer.follow([2, 3])
    [weight, *_] = gradients(model, reducer, torch.randn(2, 3, 8, 8))
    assert weight.is_contiguous(), "a rank that joins lays out the same"
