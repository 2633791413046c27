"""Ranks that hold different weights are found by the runtime, and the training stops on all of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tidepool.refusal import Refusal
from tidepool.torch.rank import agreement
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

from tests.runtime.replicas import on_ranks, own_loop

Change = Callable[[nn.Module], Any]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "_SECONDS", 0.0)
    monkeypatch.setattr(agreement, "_SHARE", 1e9)


def weights(model: nn.Module) -> None:
    model[0].weight.data[0, 0] += 1e-6


def frozen(model: nn.Module) -> None:
    model[2].bias.data[0] += 1e-6


def buffers(model: nn.Module) -> None:
    model[1].running_mean[0] += 1e-6  # type: ignore[index]


def loop(change: Change | None, only: int, steps: int, *, catches: bool = False, **options: Any) -> tuple[int, str]:
    """The number of steps that the rank has made, and the error that ended it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    model[2].requires_grad_(False)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.fill_(0.1 * number)
    optimizer = torch.optim.SGD(model[0].parameters(), 0.01)
    samples = TensorDataset(torch.linspace(-1, 1, 8 * steps * 4).view(-1, 4))
    (loader, model, optimizer), epochs, ours = own_loop(DataLoader(samples, 8), model, optimizer, **options)
    position, changed = ours.training_loop.position, False
    try:
        for _ in epochs(range(1)):
            for (features,) in loader:
                if position.step == 4 and not changed and change is not None and ours.training_loop.rank == only:
                    changed = True
                    change(model)
                try:
                    mse_loss(model(features), features).backward()
                    optimizer.step()
                except Refusal:
                    if not catches:
                        raise
    except Refusal as error:
        return position.step, str(error)
    return position.step, ""


@pytest.mark.parametrize("change", [weights, frozen])
@pytest.mark.parametrize("how", [{}, {"exactness": "bitwise", "virtual_ranks": 4}])
@pytest.mark.parametrize(("ranks", "only"), [(2, 1), (3, 0)])
def test_a_difference_stops_all_ranks_at_once(ranks: int, only: int, change: Change, how: dict[str, Any]) -> None:
    ends = on_ranks(ranks, lambda: loop(change, only, 12, **how))
    assert len(set(ends)) == 1
    made, error = ends[0]
    assert 4 <= made <= 7
    assert "hold different weights or buffers at step" in error
    assert "still were the same" in error


def test_statistics_that_a_step_sets_are_those_of_rank_0() -> None:
    assert {made for made, _ in on_ranks(2, lambda: loop(buffers, 1, 8))} == {8}


def test_ranks_that_are_alike_go_on() -> None:
    assert on_ranks(3, lambda: loop(None, 0, 12)) == [(12, "")] * 3


def test_a_loop_that_catches_every_error_is_stopped_all_the_same() -> None:
    ends = on_ranks(2, lambda: loop(weights, 1, 12, catches=True))
    assert {error for _, error in ends} != {""}
    assert max(made for made, _ in ends) < 9


def test_devices_of_different_kinds_may_round_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = iter(["A", "B"])
    monkeypatch.setattr(agreement, "device_kind", lambda device: next(kinds))
    assert on_ranks(2, lambda: loop(weights, 1, 8)) == [(8, "")] * 2
