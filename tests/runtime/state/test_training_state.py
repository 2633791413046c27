"""The list of what belongs to a training's state: all of it reaches another process, nothing is rounded on the way."""

import random
from typing import Any

import numpy
import pytest
import torch
from tidepool.torch.state.randomness import Generators
from tidepool.torch.state.training_state import Position, TrainingState


class WideMomentum(torch.optim.Optimizer):
    """Keeps a float32 average of each gradient, whatever its parameter's dtype is."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            average = self.state[parameter].setdefault("average", torch.zeros(parameter.shape))
            average.lerp_(parameter.grad.float(), 0.1)


def training(seed: int) -> TrainingState:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2, dtype=torch.bfloat16), torch.nn.Linear(2, 2))
    model.register_buffer("cache", torch.full((2,), float(seed)), persistent=False)
    optimizers = {"wide": WideMomentum(model[0].parameters()), "adam": torch.optim.Adam(model[1].parameters())}
    for _ in range(seed):
        model[1](model[0](torch.ones(1, 3, dtype=torch.bfloat16)).float()).sum().backward()
        for optimizer in optimizers.values():
            optimizer.step()
    schedule = torch.optim.lr_scheduler.StepLR(optimizers["adam"], seed)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**seed)
    position = Position(step=seed, operation=seed, effective_batch_size=64, records=[{"step": seed, "cursor": seed}])
    generators = Generators(torch.device("cpu"))
    return TrainingState(model, optimizers, {"schedule": schedule}, position, scaler, generators)


def assert_same(one: TrainingState, other: TrainingState) -> None:
    packed = [state.pack() for state in (one, other)]
    assert packed[0][0] == packed[1][0]
    for own, sent in zip(packed[0][1], packed[1][1], strict=True):
        assert own.dtype == sent.dtype
        assert own.equal(sent)


def test_everything_on_the_list_reaches_the_other_process() -> None:
    sender, receiver = training(5), training(3)
    sender.model[0].requires_grad_(False)
    receiver.load(*sender.pack())

    assert [parameter.requires_grad for parameter in receiver.model.parameters()] == [False, False, True, True]
    assert receiver.model.cache.tolist() == [5.0, 5.0], "a buffer that a state_dict leaves out"
    [average] = {state["average"].dtype for state in receiver.optimizers["wide"].state.values()}
    assert average == torch.float32, "load_state_dict alone rounds it to its parameter's bfloat16"
    assert receiver.scaler is not None
    assert receiver.scaler.get_scale() == 2.0**5
    assert_same(receiver, sender)


def draws() -> list[float]:
    return [random.random(), float(numpy.random.random()), float(torch.rand(()))]


def test_a_joiner_draws_at_the_epochs_top_what_the_others_drew_there() -> None:
    sender, receiver = training(2), training(3)
    assert sender.generators is not None
    assert receiver.generators is not None
    sender.generators.begin_epoch()
    at_the_top = draws()
    sender.generators.begin_steps()
    packed = sender.pack()
    later = draws()

    receiver.load(*packed)
    draws()  # whatever the joiner has drawn before it begins
    receiver.generators.begin_epoch()
    assert draws() == at_the_top
    receiver.generators.begin_steps()
    assert draws() == later


def test_a_checkpoint_between_epochs_goes_on_with_the_next_number() -> None:
    sender, receiver = training(2), training(3)
    assert sender.generators is not None
    assert receiver.generators is not None
    sender.generators.begin_epoch()
    draws()
    sender.generators.end_epoch()
    packed = sender.pack()
    following = draws()

    receiver.load(*packed)
    receiver.generators.begin_epoch()
    assert draws() == following


def test_who_missed_a_step_keeps_what_its_own_script_will_change() -> None:
    newer, late = training(3), training(2)
    late.load(*training(2).pack())
    newer.registered["schedule"].last_epoch = 9  # the newer rank's script has gone on, the late one's has not
    seen: list[tuple[int, torch.Tensor]] = []

    def after(step: int) -> None:
        seen.append((step, late.model[1].weight.detach().clone()))
        with torch.no_grad():
            late.model[1].weight.mul_(0)  # the sender has done this already: not twice

    late.after_update = after
    before = late.registered["schedule"].state_dict()
    late.catch_up(*newer.pack())

    [(step, weight)] = seen
    assert step == 2
    assert weight.equal(newer.model[1].weight)
    assert late.model[1].weight.equal(newer.model[1].weight)
    assert late.registered["schedule"].state_dict() == before
    assert late.position.step == 3
    late.catch_up(*newer.pack())
    assert len(seen) == 1, "no step was missed this time"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda state: state.registered.clear(), "registered objects differ"),
        (lambda state: state.optimizers.pop("adam"), "optimizers differ"),
        (lambda state: setattr(state, "scaler", None), "kinds of state differ"),
    ],
)
def test_the_state_of_another_script_is_refused(change: Any, said: str) -> None:
    packed, other = training(3).pack(), training(3)
    change(other)
    with pytest.raises(ValueError, match=said):
        other.load(*packed)
