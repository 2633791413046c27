"""Tests of features of scripts, each against the same training in plain PyTorch, on one rank and off the cluster."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy
import pytest
import torch
from tidepool.torch import Session
from tidepool.torch.data import epoch_order
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.utils import parametrize
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import TensorDataset

SAMPLES, BATCH, EPOCHS = 50, 16, 3
GENERATOR = torch.Generator().manual_seed(5)
DATA = TensorDataset(torch.randn(SAMPLES, 6, generator=GENERATOR), torch.randint(0, 3, (SAMPLES,), generator=GENERATOR))


@dataclass
class Script:
    """Parts of a script, and its work in a step, in an epoch and around the update."""

    model: nn.Module
    optimizers: list[torch.optim.Optimizer]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    before: Callable[[], Any] | None = None
    after: Callable[[], Any] | None = None
    scaler: torch.amp.GradScaler | None = None
    registered: dict[str, Any] = field(default_factory=dict)
    epoch_begins: Callable[[int], Any] = lambda epoch: None


def train_in_session(script: Script, rank_batch_size: int | None = None) -> list[float]:
    session = Session(
        script.model,
        script.optimizers,
        effective_batch_size=BATCH,
        rank_batch_size=rank_batch_size,
        seed=7,
        registered=script.registered,
        before_update=script.before,
        after_update=script.after,
        scaler=script.scaler,
    )
    losses = []
    for epoch in session.epochs(EPOCHS):
        script.epoch_begins(epoch)
        for step in session.steps(DATA):
            for inputs, labels in step:
                step.backward(script.loss(inputs, labels))
        losses.append(session.position.records[-1]["loss"])
    return losses


def train_plainly(script: Script) -> list[float]:
    losses = []
    for epoch in range(EPOCHS):
        script.epoch_begins(epoch)
        order = epoch_order(7, epoch, SAMPLES)
        for start in range(0, SAMPLES, BATCH):
            indices = order[start : start + BATCH]
            for optimizer in script.optimizers:
                optimizer.zero_grad()
            loss = script.loss(DATA.tensors[0][indices], DATA.tensors[1][indices])
            update_plainly(script, loss)
        losses.append(float(loss.detach()))
    return losses


def update_plainly(script: Script, loss: torch.Tensor) -> None:
    scaler = script.scaler or torch.amp.GradScaler("cpu", enabled=False)
    scaler.scale(loss).backward()
    for optimizer in script.optimizers:
        scaler.unscale_(optimizer)
    if script.before:
        script.before()
    for optimizer in script.optimizers:
        scaler.step(optimizer)
    scaler.update()
    if script.after:
        script.after()


def network(seed: int = 3) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.05)


def simple(model: nn.Module) -> Script:
    return Script(model, [adam(model)], lambda inputs, labels: cross_entropy(model(inputs), labels))


def clipping() -> Script:
    script = simple(network())
    script.before = lambda: nn.utils.clip_grad_norm_(script.model.parameters(), 0.1)
    return script


def schedule_by_steps_and_averaged_weights() -> Script:
    script = simple(network())
    schedule = torch.optim.lr_scheduler.OneCycleLR(script.optimizers[0], 0.1, total_steps=EPOCHS * 4)
    average = AveragedModel(script.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))

    def after() -> None:
        schedule.step()
        average.update_parameters(script.model)

    script.after, script.registered = after, {"schedule": schedule, "average": average}
    return script


def parameter_groups() -> Script:
    model = network()
    groups = [{"params": model[0].parameters(), "lr": 0.01}, {"params": model[2].parameters(), "weight_decay": 0.1}]
    script = simple(model)
    script.optimizers = [torch.optim.AdamW(groups, lr=0.1)]
    return script


def frozen_parameters() -> Script:
    script = simple(network())
    script.model[0].requires_grad_(False)
    return script


def thawed_later() -> Script:
    script = simple(network())
    script.epoch_begins = lambda epoch: script.model[0].requires_grad_(epoch >= 1)
    return script


def frozen_later() -> Script:
    script = simple(network())
    script.epoch_begins = lambda epoch: script.model[0].requires_grad_(epoch < 1)
    return script


class Experts(nn.Module):
    """One expert sees few samples, another none at all."""

    def __init__(self) -> None:
        super().__init__()
        self.common, self.rare, self.never = nn.Linear(6, 3), nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.common(inputs)
        chosen = inputs[:, 0] > 1.7
        if chosen.any():
            outputs = outputs.index_add(0, chosen.nonzero().flatten(), self.rare(inputs[chosen]))
        return outputs


def unused_parameters() -> Script:
    torch.manual_seed(3)
    script = simple(Experts())
    script.optimizers = [torch.optim.AdamW(script.model.parameters(), lr=0.05, weight_decay=0.1)]
    return script


def two_networks() -> Script:
    """Train as in adversarial training: each optimizer has a network of its own, in one module."""
    model = nn.ModuleDict({"generator": network(3), "judge": nn.Linear(3, 1)})

    def loss(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        made = model["generator"](inputs)
        real = nn.functional.one_hot(labels, 3).float()
        judging = mse_loss(model["judge"](real), torch.ones(len(labels), 1))
        judging = judging + mse_loss(model["judge"](made.detach()), torch.zeros(len(labels), 1))
        model["judge"].requires_grad_(False)
        fooling = mse_loss(model["judge"](made), torch.ones(len(labels), 1))
        model["judge"].requires_grad_(True)
        return judging + fooling

    optimizers = [adam(model["generator"]), torch.optim.SGD(model["judge"].parameters(), lr=0.1, momentum=0.9)]
    return Script(model, optimizers, loss)


def taking_turns() -> Script:
    """One optimizer's network is trained in even epochs, the other's in odd ones."""
    model = nn.ModuleList([network(3), network(4)])

    def loss(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(model[turn[0]](inputs), labels)

    turn = [0]
    script = Script(model, [adam(model[0]), adam(model[1])], loss)
    script.epoch_begins = lambda epoch: turn.__setitem__(0, epoch % 2)
    return script


def scaled_losses() -> Script:
    """The scale is too large at first, and steps are skipped: how many depends on the size of micro-batches."""
    script = simple(network())
    plain = script.loss
    script.loss = lambda inputs, labels: 1000 * plain(inputs, labels)
    script.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1000)
    script.before = lambda: nn.utils.clip_grad_norm_(script.model.parameters(), 0.1)
    return script


def autocast() -> Script:
    model = network()

    def loss(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = model(inputs)
        return cross_entropy(outputs.float(), labels)

    return Script(model, [adam(model)], loss)


def tied_weights() -> Script:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    model[2].weight = model[0].weight
    return simple(model)


def parametrized_weights() -> Script:
    model = network()
    nn.utils.parametrizations.weight_norm(model[0])

    class Symmetric(nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return weight.triu() + weight.triu(1).transpose(-1, -2)

    model.append(nn.Linear(3, 3))
    parametrize.register_parametrization(model[3], "weight", Symmetric())
    return simple(model)


class Mixed(nn.Module):
    """A layer of each dtype."""

    def __init__(self) -> None:
        super().__init__()
        kinds = (torch.complex64, torch.float64, torch.float32, torch.bfloat16, torch.float16)
        self.layers = nn.ModuleList([nn.Linear(6, 3, dtype=kind) for kind in kinds])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = torch.zeros(len(inputs), 3)
        for layer in self.layers:
            output = layer(inputs.to(layer.weight.dtype))
            outputs = outputs + (output.abs() if output.is_complex() else output).float()
        return outputs


def several_dtypes() -> Script:
    torch.manual_seed(3)
    script = simple(Mixed())
    script.optimizers = [torch.optim.SGD(script.model.parameters(), lr=0.05, momentum=0.5)]
    return script


CASES = [
    clipping,
    schedule_by_steps_and_averaged_weights,
    parameter_groups,
    frozen_parameters,
    thawed_later,
    frozen_later,
    unused_parameters,
    two_networks,
    taking_turns,
    autocast,
    tied_weights,
    parametrized_weights,
    several_dtypes,
]


@pytest.mark.parametrize(
    ("case", "rank_batch_size"),
    [(scaled_losses, None), *((case, size) for case in CASES for size in (None, 5))],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_result_is_that_of_plain_torch(case: Callable[[], Script], rank_batch_size: int | None) -> None:
    ours, plain = case(), case()
    losses = train_in_session(ours, rank_batch_size)
    loose = case in (autocast, several_dtypes) and rank_batch_size  # their sums are rounded to eight bits
    tolerance = 0.02 if loose else 1e-5
    assert losses == pytest.approx(train_plainly(plain), rel=tolerance)
    states = [[script.model, *script.registered.values(), *script.optimizers] for script in (ours, plain)]
    for own, expected in zip(*states, strict=True):
        assert_equal(own.state_dict(), expected.state_dict(), tolerance)


def assert_equal(own: Any, expected: Any, tolerance: float) -> None:
    assert type(own) is type(expected)
    if isinstance(own, dict):
        assert own.keys() == expected.keys()
        for key in own:
            assert_equal(own[key], expected[key], tolerance)
    elif isinstance(own, torch.Tensor):
        assert own.dtype == expected.dtype
        assert torch.allclose(own, expected, atol=tolerance, rtol=tolerance), (own - expected).abs().max()
    elif isinstance(own, list | tuple):
        for one, other in zip(own, expected, strict=True):
            assert_equal(one, other, tolerance)
    else:
        assert own == pytest.approx(expected)


def test_a_scaler_skips_what_is_not_finite_and_records_unscaled_losses() -> None:
    script = scaled_losses()
    assert 0 < max(train_in_session(script)) < 2000
    [state, *_] = script.optimizers[0].state.values()
    assert 0 < int(state["step"]) < EPOCHS * 4, "steps were skipped, but not all"


def test_hooks_come_between_sum_update_and_record() -> None:
    script = simple(network())
    weight = script.model[0].weight
    seen: list[tuple[str, torch.Tensor, bool]] = []
    script.before = lambda: seen.append(("before", weight.detach().clone(), weight.grad is not None))
    script.after = lambda: seen.append(("after", weight.detach().clone(), weight.grad is not None))
    train_in_session(script, rank_batch_size=4)
    assert [name for name, _, _ in seen] == ["before", "after"] * EPOCHS * 4
    assert all(summed for _, _, summed in seen)
    assert all(not seen[index][1].equal(seen[index + 1][1]) for index in range(0, len(seen), 2))
    assert all(seen[index][1].equal(seen[index + 1][1]) for index in range(1, len(seen) - 1, 2))


def test_optimizers_may_have_names_and_all_are_in_the_state() -> None:
    model = nn.ModuleList([network(1), network(2)])
    named = {"left": adam(model[0]), "right": adam(model[1])}
    session = Session(model, named, effective_batch_size=4)
    assert session.optimizers == named


def draws() -> tuple[float, float, float]:
    return random.random(), float(numpy.random.random()), float(torch.rand(()))


def test_numbers_drawn_in_steps_leave_no_trace_outside_and_repeat_by_step() -> None:
    def run(places: int) -> tuple[list[Any], list[Any]]:
        script = simple(network())
        random.seed(1)
        numpy.random.seed(1)
        torch.manual_seed(1)
        script.before = script.after = lambda: [draws() for _ in range(places)]
        inside, outside = [], []
        script.epoch_begins = lambda epoch: outside.append(draws())
        plain = script.loss

        def loss(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            inside.append(draws())
            return plain(inputs, labels)

        script.loss = loss
        train_in_session(script)
        return inside, outside

    first, second = run(1), run(5)
    assert first == second
    assert len(set(first[0])) == EPOCHS * 4
    assert len({value for entry in first[0] for value in entry}) == EPOCHS * 4 * 3
    random.seed(1)
    numpy.random.seed(1)
    torch.manual_seed(1)
    assert first[1] == [draws() for _ in range(EPOCHS)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_trains_and_its_weights_have_plain_names(backend: str) -> None:
    ours, plain = simple(network()), simple(network())
    compiled = torch.compile(ours.model, backend=backend)
    ours.loss = lambda inputs, labels: cross_entropy(compiled(inputs), labels)
    bare, ours.model = ours.model, compiled
    train_in_session(ours)
    train_plainly(plain)
    assert_equal(bare.state_dict(), plain.model.state_dict(), 1e-5)
    session = Session(compiled, adam(bare), effective_batch_size=4)
    assert session.model is bare
