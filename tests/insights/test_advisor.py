"""Tests of the advisor on curves with a known fault, and of its silence about healthy ones."""

import math
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest
import torch
from sklearn.datasets import load_digits

from insights.advisor import MIN_STEPS, Advice, Training, advise, loss_count
from jobs.queries.metrics import Curve, Sample

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SEEDS = range(6)


def curve(values: Sequence[float | None], first: int = 1, apart: int = 1) -> Curve:
    return Curve(
        [
            Sample(first + number * apart, value, START + timedelta(seconds=number * apart))
            for number, value in enumerate(values)
        ]
    )


def drawn(steps: int, rule: Callable[[int], float], noise: float, seed: int) -> list[float]:
    dice = random.Random(seed)
    return [rule(step) + dice.gauss(0, noise) for step in range(1, steps + 1)]


def codes(training: Training) -> list[str]:
    return [advice.code for advice in advise(training)]


def said(training: Training, code: str) -> Advice:
    [advice] = [advice for advice in advise(training) if advice.code == code]
    assert advice.suggestions
    return advice


HEALTHY = {
    "exponential": (lambda step: 2.3 * math.exp(-step / 120) + 0.3, 0.05),
    "to zero": (lambda step: 2.3 * math.exp(-step / 60), 0.003),
    "power law, as language models": (lambda step: 3 + 7 * step**-0.3, 0.1),
    "linear": (lambda step: 5 - step / 200, 0.3),
    "steps down with the learning rate": (lambda step: 2.0 if step < 200 else 1.0 if step < 450 else 0.4, 0.1),
    "a bump that heals": (lambda step: 2 * math.exp(-step / 200) + (1.5 if 200 < step < 240 else 0), 0.05),
    "negative, as a likelihood": (lambda step: -5 + 4 * math.exp(-step / 250), 0.05),
    "slow to begin": (lambda step: 2.3 if step < 80 else 2.3 * math.exp(-(step - 80) / 300), 0.05),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", HEALTHY)
@pytest.mark.parametrize("steps", [60, 300, 600])
def test_healthy_losses_are_left_alone(shape: str, steps: int, seed: int) -> None:
    rule, noise = HEALTHY[shape]
    loss = drawn(steps, rule, noise, seed)
    held_out = [value + 0.05 for value in loss[19::20]]
    progress = {"exponential": 0.95, "to zero": 1.0}.get(shape, steps / 600)

    training = Training({"loss": curve(loss), "test_loss": curve(held_out, 20, 20)}, progress=progress)

    assert codes(training) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rising_accuracy_is_left_alone(seed: int) -> None:
    accuracy = drawn(600, lambda step: 100 * (1 - 0.9 * math.exp(-step / 150)), 3, seed)
    loss = drawn(600, lambda step: 2.3 * math.exp(-step / 150), 0.05, seed)

    assert codes(Training({"loss": curve(loss), "accuracy": curve(accuracy)}, progress=0.5)) == []


def test_too_few_steps_say_nothing() -> None:
    training = Training({"loss": curve([2.0] * (MIN_STEPS - 1)), "accuracy": curve([10.0] * (MIN_STEPS - 1))})

    assert (codes(training), loss_count(training)) == ([], MIN_STEPS - 1)
    assert codes(Training({})) == []


def test_a_loss_that_is_no_number_any_more() -> None:
    advice = said(Training({"loss": curve([2.0, 1.0, 0.5, None, None, None])}), "LOSS_NOT_A_NUMBER")

    assert (advice.severity, advice.params["since_step"]) == ("wrong", 4)
    assert "since step 4" in advice.text


def test_a_loss_that_recovered_is_mentioned() -> None:
    values = [2.0 * math.exp(-step / 60) for step in range(300)]
    training = Training({"loss": curve([*values[:150], None, None, None, *values[153:]])})

    assert codes(training) == ["LOSS_HAD_GAPS"]
    assert "3 of 300 steps, last at step 153" in said(training, "LOSS_HAD_GAPS").text


@pytest.mark.parametrize("seed", SEEDS)
def test_a_loss_that_diverges(seed: int) -> None:
    loss = drawn(400, lambda step: 2 * math.exp(-step / 60) + math.exp((step - 300) / 40), 0.05, seed)
    training = Training({"loss": curve(loss), "learning_rate": curve([0.5] * 400)}, progress=0.5)

    advice = said(training, "LOSS_DIVERGES")

    assert 100 < advice.params["best_last_step"] < 330
    assert "now 0.5" in advice.suggestions[0]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("level", [0.69, 2.3, 30.0])
def test_a_loss_that_has_stalled(seed: int, level: float) -> None:
    loss = drawn(600, lambda step: level * (1 + 2 * math.exp(-step / 30)), 0.05 * level, seed)
    training = Training({"loss": curve(loss)}, progress=0.4)

    advice = said(training, "LOSS_STALLED")

    assert advice.params["now"] == pytest.approx(level, rel=0.05)
    assert codes(Training({"loss": curve(loss)}, progress=0.4, is_over=True)) == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_an_accuracy_at_chance(seed: int, classes: int) -> None:
    accuracy = drawn(300, lambda step: 100 / classes, 20 / classes, seed)
    loss = drawn(300, lambda step: math.log(classes), 0.02, seed)

    advice = said(Training({"loss": curve(loss), "accuracy": curve(accuracy)}, progress=0.3), "ACCURACY_AT_CHANCE")

    assert advice.params["classes"] == pytest.approx(classes, rel=0.05)
    assert "as good as guessing among" in advice.text


@pytest.mark.parametrize("seed", SEEDS)
def test_held_out_loss_that_rises_while_training_loss_falls(seed: int) -> None:
    loss = drawn(600, lambda step: 2 * math.exp(-step / 100), 0.01, seed)
    held_out = drawn(20, lambda epoch: 2 * math.exp(-epoch / 3) + 0.02 * epoch, 0.005, seed)
    training = Training({"loss": curve(loss), "val_loss": curve(held_out, 30, 30)}, progress=0.7)

    advice = said(training, "OVERFITS")

    assert 200 < advice.params["best_step"] < 450
    assert "held-out data has risen" in advice.text


def test_a_held_out_loss_that_rises_while_accuracy_rises_is_no_overfitting() -> None:
    loss = drawn(600, lambda step: 2 * math.exp(-step / 100), 0.01, 1)
    held_out = drawn(20, lambda epoch: 2 * math.exp(-epoch / 3) + 0.02 * epoch, 0.005, 1)
    accuracy = [50.0 + epoch for epoch in range(20)]
    curves = {"loss": curve(loss), "test_loss": curve(held_out, 30, 30), "test_accuracy": curve(accuracy, 30, 30)}

    assert codes(Training(curves, progress=0.7)) == []


@pytest.mark.parametrize(
    ("speeds", "enough"),
    [
        ({4: 1000, 8: 1010}, 4),
        ({2: 1000, 4: 1900, 8: 1950}, 4),
        ({1: 900, 8: 700}, 1),
        ({4: 1000, 8: 1300}, None),
        ({1: 300, 4: 1100, 8: 2000}, None),
        ({4: 1000, 5: 1000}, None),
        ({8: 1000}, None),
    ],
)
def test_gpus_that_make_nothing_faster(speeds: dict[int, float], enough: int | None) -> None:
    values = [speed * random.Random(number).uniform(0.9, 1.1) for speed in speeds.values() for number in range(50)]
    sizes = [(START + timedelta(seconds=50 * number), size) for number, size in enumerate(speeds)]
    found = advise(Training({"samples_per_second": curve(values)}, sizes))

    assert [advice.params["enough"] for advice in found] == ([enough] if enough else [])
    if enough:
        assert f"Your maximum could be {enough}." in found[0].text


# --- Curves of real trainings ----------------------------------------------------------------------------------------


def train(
    seed: int, *, rate: float = 0.1, epochs: int = 12, shuffled: bool = False, few: int | None = None
) -> Training:
    """A small network on the digits, in this process; every number as a session would report it."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    digits = load_digits()
    inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    if shuffled:
        labels = labels[torch.randperm(len(labels))]
    order = torch.randperm(len(inputs))
    learned, held_out = order[:1400][:few], order[1400:]
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    measured: dict[str, list[tuple[int, float]]] = {"loss": [], "accuracy": [], "test_loss": [], "test_accuracy": []}
    step = 0
    for _ in range(epochs):
        for chosen in learned[torch.randperm(len(learned))].split(64):
            step += 1
            outputs = model(inputs[chosen])
            loss = torch.nn.functional.cross_entropy(outputs, labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            measured["loss"].append((step, float(loss.detach())))
            measured["accuracy"].append((step, 100 * float((outputs.argmax(1) == labels[chosen]).float().mean())))
        with torch.no_grad():
            outputs = model(inputs[held_out])
            measured["test_loss"].append((step, float(torch.nn.functional.cross_entropy(outputs, labels[held_out]))))
            right = (outputs.argmax(1) == labels[held_out]).float().mean()
            measured["test_accuracy"].append((step, 100 * float(right)))
    curves = {
        name: Curve([Sample(at, value if math.isfinite(value) else None) for at, value in values])
        for name, values in measured.items()
    }
    return Training(curves, progress=0.8)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rate", [0.01, 0.05, 0.1])
def test_real_trainings_that_are_well_are_left_alone(seed: int, rate: float) -> None:
    assert codes(train(seed, rate=rate)) == []


def test_a_real_training_with_far_too_high_a_learning_rate() -> None:
    found = codes(train(1, rate=50.0))

    assert found
    assert set(found) <= {"LOSS_NOT_A_NUMBER", "LOSS_DIVERGES", "ACCURACY_AT_CHANCE", "LOSS_STALLED"}


def test_a_real_training_that_learns_noise_by_heart() -> None:
    assert codes(train(1, shuffled=True, few=320, epochs=80)) == ["OVERFITS"]


def test_a_real_training_that_cannot_learn() -> None:
    assert codes(train(1, shuffled=True, rate=0.001)) == ["ACCURACY_AT_CHANCE"]
