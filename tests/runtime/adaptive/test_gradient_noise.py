"""Gradient noise: S and Q found again from drawn gradients, whatever the shares are, and the rates that follow."""

import math

import pytest
import torch
from tidepool.torch.adaptive.gradient_noise import NoiseAverages, SquaredNorms, estimate
from tidepool.torch.adaptive.scaling_rules import RULES, Moment, chosen_rule, factor

SIZE, TRUE_S, TRUE_Q = 400, 9.0, 4.0


@pytest.mark.parametrize(
    "shares", [(64, 64), (43, 43, 42), (20, 5), (1, 30), (7, 7, 7, 2)], ids=lambda shares: "-".join(map(str, shares))
)
@pytest.mark.parametrize("read", ["all", "the first"])
def test_noise_is_found_whatever_the_shares_are(shares: tuple[int, ...], read: str) -> None:
    generator = torch.Generator().manual_seed(1)
    true = torch.randn(SIZE, generator=generator)
    true *= math.sqrt(TRUE_Q) / true.norm()
    averages, samples = NoiseAverages(), sum(shares)
    for _ in range(2000):
        # Means of so many samples' gradients, each of which differs from the true one by SIZE numbers of this variance.
        means = [true + torch.randn(SIZE, generator=generator) * math.sqrt(TRUE_S / SIZE / b) for b in shares]
        whole = sum((mean * b / samples for mean, b in zip(means, shares, strict=True)), torch.zeros(SIZE))
        told = list(zip(means, shares, strict=True))[: 1 if read == "the first" else None]
        mean_square = sum(float(mean.square().sum()) for mean, _ in told) / len(told)
        found = estimate(mean_square, sum(1 / b for _, b in told) / len(told), float(whole.square().sum()), samples)
        assert found is not None
        averages.add([found], 1.0)
    total = averages.total()
    assert total is not None
    assert total == (pytest.approx(TRUE_S, rel=0.1), pytest.approx(TRUE_Q, rel=0.1))


def test_one_part_alone_tells_nothing_nor_does_what_is_not_finite() -> None:
    assert estimate(3.0, 1 / 64, 3.0, 64) is None
    assert estimate(math.nan, 1 / 32, 3.0, 64) is None
    assert estimate(3.0, 1 / 32, math.inf, 64) is None


def test_averages_begin_with_the_first_measurement_and_are_never_negative() -> None:
    averages = NoiseAverages()
    assert averages.total() is None
    averages.add([(8.0, -2.0), (1.0, 3.0)], 8)
    assert averages.groups() == [(pytest.approx(8.0), 0.0), (pytest.approx(1.0), pytest.approx(3.0))]
    assert averages.total() == (pytest.approx(9.0), pytest.approx(3.0))


def test_lengths_are_told_by_parameter_group_and_as_adam_steps() -> None:
    plain, normed = (torch.nn.Parameter(torch.zeros(3)) for _ in range(2))
    optimizers = {"a": torch.optim.SGD([plain], lr=1.0), "b": torch.optim.Adam([normed], lr=1.0, betas=(0.9, 0.99))}
    gradients = [torch.tensor([1.0, 2.0, 2.0]), torch.tensor([3.0, 0.0, 4.0])]
    lengths = SquaredNorms(optimizers)
    assert lengths.squares([plain, normed], gradients).tolist() == [9.0, 25.0]
    normed.grad = gradients[1].clone()
    for _ in range(6):
        optimizers["b"].step()
    assert lengths.squares([plain, normed], gradients).tolist() == [9.0, pytest.approx(2.0, rel=1e-4)], (
        "of length 1 each"
    )
    assert [step for step in range(40) if lengths.is_ready(step)] == [16, 32]


def test_a_single_rank_cuts_fewer_steps_in_two_once_averages_are_full() -> None:
    lengths = SquaredNorms({"": torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)})
    cut = [step for step in range(1200) if lengths.is_cut(step)]
    assert cut == [*range(0, 256, 16), *range(256, 1024, 32), 1024, 1088, 1152]
    assert all(map(lengths.is_ready, cut))


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in ("auto", "legw")])
def test_the_batch_of_the_submission_has_its_own_rate(rule: str) -> None:
    assert factor(rule, (5.0, 1.0), Moment(64, 64)) == 1.0


def test_rules() -> None:
    at = Moment(64, 256)
    assert factor("linear", None, at) == 4.0
    assert factor("sqrt", None, at) == 2.0
    assert factor("adascale", (1e9, 1e-9), at) == pytest.approx(4.0), "noise alone: as good as so many steps"
    assert factor("adascale", (1e-6, 1e3), at) == pytest.approx(1.0), "no noise: larger batches are worth nothing"
    assert factor("adascale", (64.0, 1.0), at) == pytest.approx(2 / 1.25)
    assert factor("adamscale", (64.0, 1.0), at) == pytest.approx(math.sqrt(2 / 1.25))
    assert factor("adascale", None, at) == 1.0, "not measured yet"
    assert factor("legw", None, Moment(64, 256, progress=20, warm_up_steps=10)) == pytest.approx(2.0 * 20 / 40)
    assert factor("legw", None, Moment(64, 256, progress=50, warm_up_steps=10)) == 2.0


def test_adam_gets_its_own_rule_by_itself() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(1))]
    assert chosen_rule("auto", {"": torch.optim.SGD(parameters, lr=1.0)}) == "adascale"
    assert chosen_rule("auto", {"": torch.optim.AdamW(parameters, lr=1.0)}) == "adamscale"
    assert chosen_rule("linear", {"": torch.optim.AdamW(parameters, lr=1.0)}) == "linear"
