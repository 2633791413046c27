"""Hooks of a script on the gradients of parameters see the gradient that one process would have computed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.runtime.rank.test_losses import a_mean, differing, no_labels, plain, prepared_loop, session_loop, trained

Hook = Callable[[Any], None]


def clamp(model: Any) -> None:
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(-0.002, 0.002))


def in_place(model: Any) -> None:
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: gradient.sign_().mul_(0.01))


def normalize(model: Any) -> None:
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: functional.normalize(gradient, dim=-1) * 0.1)


def accumulated(model: Any) -> None:
    def change(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.clamp_(-0.002, 0.002)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(change)


def removed(model: Any) -> None:
    """The first hook removes itself and another one, which torch does not call any more."""
    handles: list[Any] = []

    def once(gradient: torch.Tensor) -> torch.Tensor:
        for handle in handles:
            handle.remove()
        return gradient * 0.5

    [parameter, *_] = model.parameters()
    handles.append(parameter.register_hook(once))


def of_activations(model: Any) -> None:
    model[1].register_full_backward_pre_hook(lambda _, gradients: (gradients[0].clamp(-0.001, 0.001),))


def mean(model: nn.Module, words: torch.Tensor, labels: torch.Tensor) -> Any:
    return no_labels(model, words, labels.clamp(min=0))


@pytest.mark.parametrize("how", [{}, {"rank_batch_size": 3}, {"exactness": "bitwise", "virtual_ranks": 4}])
@pytest.mark.parametrize("loop", [prepared_loop, session_loop])
@pytest.mark.parametrize("hook", [clamp, in_place, normalize, accumulated, removed, of_activations])
def test_hooks_see_the_gradient_of_one_process(hook: Hook, loop: Any, how: dict[str, Any]) -> None:
    loss_of = a_mean if hook is of_activations else mean
    found = trained(2, loop, [loss_of], hook=hook, **how)
    expected = plain(loss_of, hook)
    assert not all(torch.allclose(expected[name], tensor, atol=1e-4) for name, tensor in plain(loss_of).items())
    for one in found:
        assert all(torch.allclose(one[loss_of.__name__][name], expected[name], atol=3e-6) for name in expected)


def test_noise_of_a_hook_depends_on_the_step_alone() -> None:
    """On one rank: ranks of these tests are threads, which draw from one generator."""

    def noise(model: Any) -> None:
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: gradient + 0.01 * torch.randn_like(gradient))

    whole, again, pieces = (
        trained(1, session_loop, [mean], hook=noise, **how)[0]["mean"] for how in ({}, {}, {"rank_batch_size": 3})
    )
    assert all(again[name].equal(whole[name]) for name in whole)
    assert all(torch.allclose(pieces[name], whole[name], atol=3e-6) for name in whole)
    assert differing([{"mean": whole}], [mean]) == ["mean"]
