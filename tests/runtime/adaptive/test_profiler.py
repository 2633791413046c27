"""Times of steps: what a rank measures, what it tells, what is believed, and that no weight changes by it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec import structs
from tidepool.profile_checks import PROFILE_SECONDS, Profiles, bounds_of, noise_of, why_batch_refused, why_refused
from tidepool.protocol import AdaptedBatch, MemberMessage, Profiled, ProfileRefused, StepTimes, decode, encode
from tidepool.torch import Session
from tidepool.torch.adaptive import profiler
from tidepool.torch.adaptive.profiler import CompletedStep, Profiler, Shape, Stopwatch, TimesOfSteps
from tidepool.torch.comm.reducer import CONTROL_SIZE, SumReducer
from tidepool.torch.state.training_state import Position

from tests.runtime.groups import groups, together
from tests.runtime.lab import Lab
from tests.waiting import wait_until

SHAPE = Shape(hosts=1, ranks=2, batch=16)


def times(**changes: float | str) -> StepTimes:
    values = {"kind": "A", "hosts": 1, "ranks": 2, "batch": 16, "compute_seconds": 0.1, "step_seconds": 0.2, "steps": 9}
    return StepTimes(**{**values, **changes})  # type: ignore[arg-type]


def message(*told: StepTimes) -> MemberMessage:
    return MemberMessage("profile", step=5, batch_size=64, times=[*told])


# --- reports --------


def filled(count: int, step_seconds: float = 0.2) -> TimesOfSteps:
    table = TimesOfSteps("A")
    for _ in range(count):
        table.add(SHAPE, 0.1, step_seconds)
    return table


def test_a_median_of_the_newest_two_hundred_is_told() -> None:
    table = filled(300, 4.0)
    for _ in range(101):
        table.add(SHAPE, 0.1, 8.0)
    assert table.take_changes(0.0) == [times(step_seconds=8.0, steps=401)]


def test_of_quick_steps_the_newest_ten_minutes_count() -> None:
    table = filled(9 * 300)
    for _ in range(4 * 300):  # 8 of the 17 minutes
        table.add(SHAPE, 0.1, 0.4)
    assert table.take_changes(0.0) == [times(step_seconds=0.2, steps=13 * 300)]
    for _ in range(3 * 300):
        table.add(SHAPE, 0.1, 0.4)
    assert table.take_changes(PROFILE_SECONDS) == [times(step_seconds=0.4, steps=16 * 300)]


def test_only_what_has_moved_is_told_again_and_not_too_often() -> None:
    table = filled(100)
    assert table.take_changes(0.0) == [times(steps=100)]
    table.add(SHAPE, 0.1, 0.2)
    assert table.take_changes(PROFILE_SECONDS + 1) == [], "nothing has moved"
    for _ in range(200):
        table.add(SHAPE, 0.1, 0.21)
    assert table.take_changes(PROFILE_SECONDS + 2) is None, "too soon"
    assert table.take_changes(2 * PROFILE_SECONDS + 1) == [times(step_seconds=0.21, steps=301)]


def test_a_few_steps_tell_nothing_and_the_first_are_told_again_when_they_have_doubled() -> None:
    table = filled(4)
    assert table.take_changes(0.0) is None
    table.add(SHAPE, 0.1, 0.2)
    assert table.take_changes(0.1) == [times(steps=5)]
    for _ in range(5):
        table.add(SHAPE, 0.1, 0.2)
    assert table.take_changes(PROFILE_SECONDS + 1) == [times(steps=10)]


# --- measurements -------


def made(generation: int = 1, pieces: int = 1, seconds: float = 0.2) -> CompletedStep:
    return CompletedStep(SHAPE, pieces, seconds, generation)


def profile_of(steps: list[tuple[CompletedStep, bool]]) -> list[StepTimes]:
    """After these steps, each of which two ranks have computed for 0.05 seconds a piece."""
    profiler = Profiler(torch.device("cpu"))
    for step, counts in [*steps, (made(99), True)]:  # figures of a step are told with the next one
        profiler.made(step, (0.1, 2.0), counts=counts)
    return profiler.times.medians()


def test_steps_after_a_switch_and_with_a_copy_do_not_count() -> None:
    [found] = profile_of([(made(seconds=0.2 if 3 <= place < 9 else 9.0), place != 9) for place in range(10)])
    assert (found.step_seconds, found.steps) == (0.2, 6)
    assert profile_of([(made(generation), True) for generation in range(1, 20)]) == []


def test_accumulated_micro_batches_are_told_apart_from_the_rest_of_the_step() -> None:
    [found] = profile_of([(made(pieces=4, seconds=0.31), True)] * 10)
    assert (found.compute_seconds, found.step_seconds) == (0.05, 0.16)


def adapted(**changes: Any) -> AdaptedBatch:
    values: dict[str, Any] = {
        "submitted": 8, "most": 64, "batch": 32, "least_micro_batch": 1, "most_micro_batch": 16, "micro_batch": 16,
        "accumulates": True, "accumulation": 1, "pinned": False, "gain": 3.5, "progress": 12.0, "variance": 5.0,
        "squared_gradient": 0.1,
    }  # fmt: skip
    return AdaptedBatch(**{**values, **changes})


def test_work_between_micro_batches_is_none_of_the_last_ones() -> None:
    step = CompletedStep(SHAPE, 4, 1.2, 1, before_last_seconds=0.9)
    [found] = profile_of([(step, True)] * 10)
    assert (found.compute_seconds, found.step_seconds) == (0.05, pytest.approx(0.3))


def test_a_stopwatch_leaves_out_what_lies_between_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 1.0, 10.0, 12.0, 20.0, 23.0, 30.0])
    monkeypatch.setattr(profiler.time, "monotonic", lambda: next(moments))
    watch = Stopwatch(torch.device("cpu"))
    watch.start()
    watch.stop()
    watch.start_next()
    watch.stop()
    watch.start_next()
    watch.stop()
    assert watch.seconds() == 1.0 + 2.0 + 3.0


def test_a_batch_is_told_with_every_message_and_alone_once_it_has_moved() -> None:
    profiler, position = Profiler(torch.device("cpu")), Position(step=5, effective_batch_size=32)
    for _ in range(100):
        profiler.times.add(SHAPE, 0.1, 0.2)
    turns = iter(range(9))

    def told(batch: AdaptedBatch) -> MemberMessage | None:
        return profiler.message(position, next(turns) * (PROFILE_SECONDS + 1), lambda: batch)

    first = told(adapted())
    assert first is not None
    assert (len(first.times), first.adapted, first.batch_size) == (1, adapted(), 32)
    assert told(adapted(progress=99.0, variance=5.05)) is None, "nothing has moved"
    for change in ({"variance": 5.2}, {"batch": 64}, {"pinned": True}, {"variance": None}):
        moved = told(adapted(**change))
        assert moved is not None
        assert (moved.times, moved.adapted) == ([], adapted(**change))


# --- plausibility -------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0, 1e300])
@pytest.mark.parametrize("name", ["compute_seconds", "step_seconds"])
def test_a_figure_that_cannot_be_is_left_out(name: str, value: float) -> None:
    told = decode(MemberMessage, encode(message(times(**{name: value}), times(batch=8))))
    [entry] = Profiles().received(told, 0.0)
    assert isinstance(entry, Profiled)
    assert entry.times == [times(batch=8)]


def test_other_figures_that_cannot_be() -> None:
    for wrong in ({"ranks": 0}, {"hosts": 3}, {"batch": -1}, {"batch": 2**40}, {"steps": 0}, {"kind": "x" * 129}):
        assert why_refused(times(**wrong)), wrong
    assert why_refused(times()) == ""


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e300])
@pytest.mark.parametrize("name", ["gain", "progress", "variance", "squared_gradient"])
def test_a_batch_that_cannot_be_is_left_out(name: str, value: float) -> None:
    told = decode(
        MemberMessage, encode(MemberMessage("profile", step=5, batch_size=64, adapted=adapted(**{name: value})))
    )
    assert Profiles().received(told, 0.0) == []
    [entry] = Profiles().received(structs.replace(told, times=[times()]), 0.0)
    assert isinstance(entry, Profiled)
    assert (entry.times, entry.adapted) == ([times()], None)


def test_other_batches_that_cannot_be() -> None:
    for wrong in (
        {"submitted": 0}, {"most": 4}, {"batch": 2**40}, {"least_micro_batch": 20}, {"micro_batch": 0},
        {"accumulation": -1}, {"gain": 9.0}, {"gain": 0.0}, {"progress": 50.0},
        {"rate_factors": [1.0, 9.0]}, {"rate_factors": [float("nan")]}, {"rate_factors": [1.0] * 17},
    ):  # fmt: skip
        assert why_batch_refused(adapted(**wrong), 5), wrong
    assert why_batch_refused(adapted(), 5) == ""
    assert why_batch_refused(adapted(), 0), "progress without a step"


def test_a_pinned_batch_never_changes() -> None:
    assert bounds_of(adapted()).max_batch_size == 64
    assert bounds_of(adapted(pinned=True)).max_batch_size == 8
    assert noise_of(adapted(variance=None)) is None


def test_three_refusals_one_upon_another_are_told_once() -> None:
    profiles, lie = Profiles(), message(times(step_seconds=-1.0))
    told = [profiles.received(lie if turn != 2 else message(times()), turn * PROFILE_SECONDS) for turn in range(9)]
    refused = [(turn, entry) for turn, entries in enumerate(told) for entry in entries if not hasattr(entry, "times")]
    assert [turn for turn, _ in refused] == [5]
    assert isinstance(refused[0][1], ProfileRefused)


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"most_micro_batch": -1}, {"most_micro_batch": 2**40}])
def test_a_message_with_such_counts_is_left_out(wrong: dict[str, int]) -> None:
    assert Profiles().received(structs.replace(message(times()), adapted=adapted(), **wrong), 0.0) == []


def test_a_rank_that_reports_all_the_time_is_not_listened_to() -> None:
    profiles = Profiles()
    assert profiles.received(message(times()), 100.0)
    assert profiles.received(message(times()), 100.1) == []
    assert profiles.received(message(times()), 90.0), "a clock that was put back is no reason to wait for it"


# --- cost: not a bit ------------


def summed(told: float) -> list[bytes]:
    """Gradients that three ranks have summed, while their control blocks say so much."""

    def work(rank: int, group: object) -> bytes:
        generator = torch.Generator().manual_seed(rank)
        parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((31, 7), (5,))]
        reducer = SumReducer(parameters)
        reducer.begin(group, [0, 1, 2])  # type: ignore[arg-type]
        for parameter in parameters:
            parameter.grad.copy_(torch.randn(parameter.shape, generator=generator))  # type: ignore[union-attr]
        reducer.control[CONTROL_SIZE - 2 :] = told
        reducer.finish()
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        return b"".join(bytes(gradient.numpy()) for gradient in gradients)

    with groups(3) as members:
        return together(*[lambda rank=rank, one=one: work(rank, one) for rank, one in enumerate(members)])


def test_sums_are_the_same_to_the_bit() -> None:
    assert summed(0.0) == summed(0.123)


def trained() -> bytes:
    torch.manual_seed(3)
    model = torch.nn.Linear(20, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    inputs = torch.randn(100, 20)
    session = Session(model, optimizer, effective_batch_size=16, rank_batch_size=5)
    for _ in session.epochs(2):
        for step in session.steps(torch.utils.data.TensorDataset(inputs, inputs.sum(1).long() % 2)):
            for batch, labels in step:
                step.backward(torch.nn.functional.cross_entropy(model(batch), labels))
    return b"".join(bytes(parameter.detach().numpy()) for parameter in model.parameters())


def test_weights_are_the_same_to_the_bit_as_without_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    with_profile = trained()
    monkeypatch.setattr(Profiler, "write", lambda self, control: None)
    assert trained() == with_profile


# --- all of it together ---


def test_ranks_tell_their_times_into_the_journal(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("mlp.py", arguments=["--epochs", "200", "--rank-batch", "8", "--step-seconds", "0.02"], min_slots=2)
    lab.size(2)

    def told() -> list[dict[str, float]]:
        return [point for entry in lab.journal("profile") for point in entry["times"] if point["ranks"] == 2]

    wait_until(told, lab.story)
    assert {entry["most_micro_batch"] for entry in lab.journal("profile")} == {8}
    assert (told()[0]["hosts"], told()[0]["batch"], told()[0]["kind"]) == (1, 8, "virtual GPU (CPU)")
    assert 0 < told()[0]["compute_seconds"] <= told()[0]["step_seconds"]
