"""A batch that adapts: what rank 0 chooses, that all ranks follow it, and that the weights are those of one rank."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tidepool.goodput.model import Bounds, Size
from tidepool.protocol import StepTimes
from tidepool.torch import Adaptive, Session
from tidepool.torch.adaptive.batch_chooser import WATCHED_STEPS, BatchChooser, LossWatch
from tidepool.torch.adaptive.profiler import TimesOfSteps
from tidepool.torch.data import epoch_order
from tidepool.torch.state.training_state import BatchChoice

from tests.runtime.lab import Lab
from tests.waiting import wait_until

NOISY = (1000.0, 1e-3)


def line(**options: Any) -> tuple[torch.nn.Module, Session]:
    model = torch.nn.Linear(4, 1)
    return model, Session(model, torch.optim.SGD(model.parameters(), lr=0.1), effective_batch_size=8, **options)


# --- refusals ----------


@pytest.mark.parametrize(
    ("adaptive", "options", "why"),
    [
        (Adaptive(4), {}, "less than the effective batch size 8"),
        (Adaptive(2**25), {}, "more than"),
        (Adaptive(64, rank_bounds=(9, 3)), {}, "rank_bounds"),
        (Adaptive(64, rule="cube"), {}, "rule is 'cube'"),  # type: ignore[arg-type]
        (Adaptive(64, every_seconds=-1.0), {}, "negative"),
        (Adaptive(64), {"exactness": "bitwise", "virtual_ranks": 2}, "bitwise"),
    ],
)
def test_what_cannot_be_is_refused(adaptive: Adaptive, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        line(adaptive=adaptive, **options)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"max_batch_size is 4.*rank_bounds are 9 and 3.*rule is"):
        line(adaptive=Adaptive(4, rank_bounds=(9, 3), rule="cube"))  # type: ignore[arg-type]


# --- choices ----------


def times(*micro_batches: int, ranks: int = 1) -> Callable[[], list[StepTimes]]:
    """A step costs 10 ms, and a millisecond per sample."""
    return lambda: [StepTimes("A", 1, ranks, b, 0.01 + 0.001 * b, 0.01 + 0.001 * b, 100) for b in micro_batches]


def test_a_batch_grows_where_samples_are_worth_it_and_only_when_it_is_time() -> None:
    chooser, present = BatchChooser(Bounds(8, 64, 1, 32), 30.0), BatchChoice(8, 0)
    assert chooser.choose(present, None, times(4, 8), (1, Size(1, 1)), 0.0) == present, "nobody knows the noise"
    assert chooser.choose(present, NOISY, times(4, 8), (1, Size(1, 1)), 29.0) == present, "too soon"
    assert chooser.choose(present, NOISY, times(4, 8), (1, Size(1, 1)), 31.0) == BatchChoice(64, 1)
    assert chooser.choose(present, (1e-6, 10.0), times(4, 8), (1, Size(1, 1)), 99.0) == present, "no noise"
    assert chooser.choose(present, NOISY, times(4, 8), (2, Size(1, 2)), 100.0) == BatchChoice(64, 0), "another size"


def test_a_batch_grows_where_the_script_works_beside_its_gradients() -> None:
    chooser, present = BatchChooser(Bounds(8, 64, 1, 32), 30.0), BatchChoice(8, 0)
    slow = [StepTimes("A", 1, 1, 8, 0.01, 0.06, 448)]
    assert chooser.choose(present, NOISY, lambda: slow, (1, Size(1, 1)), 0.0) == BatchChoice(64, 1)


def test_a_batch_grows_on_one_rank_that_computes_each_step_at_once() -> None:
    """AdaptDL's autoscale_batch_size allows no accumulation by default."""
    chooser = BatchChooser(Bounds(32, 512, 8, 128, accumulation=False), 30.0)
    busy = [StepTimes("A", 1, 1, 32, 0.003, 0.06, 448), StepTimes("A", 1, 1, 16, 0.002, 0.06, 60)]
    grown = BatchChoice(124, 0)  # the largest that is tried up to 128
    assert chooser.choose(BatchChoice(32, 0), NOISY, lambda: busy, (1, Size(1, 1)), 0.0) == grown
    assert chooser.choose(grown, NOISY, lambda: busy, (1, Size(1, 1)), 31.0) == grown, "its present batch fits"


def test_no_micro_batch_is_larger_than_one_that_is_known_to_fit() -> None:
    assert Adaptive(64).bounds(16, None).max_micro_batch == 16
    assert Adaptive(64).bounds(16, 4).max_micro_batch == 4
    _, session = line(adaptive=Adaptive(64))
    assert session.adaptation is not None
    session.adaptation.choice = BatchChoice(64, 0)
    assert [session.adaptation.largest(64, 1, ranks) for ranks in (1, 3, 8)] == [8, 8, 8]
    assert session.adaptation.largest(8, 16, 1) == 4, "a single rank measures noise between micro-batches"


def test_a_loss_that_rises_after_a_growth_is_noticed() -> None:
    for factor, risen in ((1.5, True), (1.05, False), (math.nan, True)):
        watch = LossWatch()
        assert not any(watch.add(2.0) for _ in range(300))
        watch.grown()
        assert [watch.add(2.0 * factor) for _ in range(WATCHED_STEPS)][-1] is risen


# --- effects --------


def trained_alone(pinned: bool) -> list[dict[str, Any]]:
    torch.manual_seed(3)
    model, session = line(adaptive=Adaptive(64, rank_bounds=(1, 64), every_seconds=0.0))
    inputs, records = torch.randn(800, 4), []
    assert session.adaptation is not None
    if pinned:
        session.adaptation._chooser.is_pinned = True
    for _ in session.epochs(2):
        for step in session.steps(torch.utils.data.TensorDataset(inputs, torch.randn(800, 1))):
            for batch, wanted in step:
                step.backward(torch.nn.functional.mse_loss(model(batch), wanted))
            records.append(step)
        assert session.adaptation.progress >= 100 * (session.position.epoch + 1) * (1 - 1e-6)
    assert session.optimizers["optimizer"].param_groups[0]["lr"] == 0.1, "schedules see their own rate"
    return [{"samples": step.samples, "epoch": step.epoch} for step in records]


def test_one_rank_makes_progress_by_what_steps_are_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps have given times: with measured ones, a busy machine may never choose a larger batch."""
    monkeypatch.setattr(TimesOfSteps, "medians", lambda _: times(4, 8)())
    records = trained_alone(pinned=False)
    assert max(record["samples"] for record in records) > 8
    assert sum(record["samples"] for record in records if record["epoch"] == 0) >= 800, "worth at most what they are"


def test_a_pinned_batch_is_the_submitted_one_and_an_epoch_one_pass() -> None:
    assert [record["samples"] for record in trained_alone(pinned=True)] == [8] * 200


def replayed(steps: list[dict[str, Any]], samples: int) -> torch.nn.Linear:
    """One rank with the same samples in each step."""
    torch.manual_seed(3)
    model = torch.nn.Linear(20, 2)
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(samples, 20, generator=generator)
    labels = torch.randint(2, (samples,), generator=generator)
    epoch = passes = cursor = 0
    for record in steps:
        if record["epoch"] != epoch:
            epoch, passes, cursor = record["epoch"], 0, 0
        elif cursor >= samples:
            passes, cursor = passes + 1, 0
        chosen = epoch_order(7, epoch, samples, passes)[cursor : cursor + record["samples"]]
        cursor = record["cursor"]
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.05 * math.sqrt(record["batch_size"] / 8) * parameter.grad
    return model


def test_ranks_that_come_go_and_die_make_the_weights_of_one(make_lab: Callable[..., Lab]) -> None:
    samples = 4000
    lab = make_lab("adaptive.py", arguments=["--samples", str(samples), "--step-seconds", "0.05"])
    lab.size(1)
    wait_until(lambda: any(record["batch_size"] > 8 for record in lab.steps()), lab.story)
    lab.size(3)
    lab.wait_for_size(3)
    lab.wait_for_steps(5)
    lab.kill(lab.member_ids()[0])
    lab.wait_for_steps(5)
    lab.size(1)
    lab.wait_for_the_end()

    steps = lab.steps()
    assert [record["step"] for record in steps] == list(range(1, len(steps) + 1))
    assert {record["world_size"] for record in steps} >= {1, 3}
    [first, *_] = [entry["adapted"] for entry in lab.journal("profile")]
    assert (first["submitted"], first["most"], first["pinned"]) == (8, 64, False)
    final = torch.load(lab.folder / "model/train/model_epoch_final.pth", weights_only=True)
    for name, tensor in replayed(steps, samples).state_dict().items():
        assert torch.allclose(final[name], tensor, atol=1e-5), name


def test_a_whole_restart_goes_on_with_the_batch(make_lab: Callable[..., Lab]) -> None:
    samples = 4000
    first = make_lab(
        "adaptive.py",
        arguments=["--samples", str(samples), "--step-seconds", "0.05"],
        checkpoint_seconds=0.2,
        checkpoints_kept=99,
    )
    first.size(2)
    wait_until(lambda: any(record["batch_size"] > 8 for record in first.steps()), first.story)
    begun = len(first.journal("checkpoint")) + 1  # the next one may have been copied before
    wait_until(lambda: len(first.journal("checkpoint")) > begun, first.story)
    newest = first.journal("checkpoint")[-1]
    wait_until(lambda: len(first.steps()) >= newest["step"], first.story)
    first.stop()

    arguments = ["--samples", str(samples)]
    second = make_lab("adaptive.py", arguments=arguments, checkpoints=[str(first.folder / newest["path"])])
    second.size(1)
    second.wait_for_the_end()
    steps = [*first.steps()[: newest["step"]], *second.steps()]
    assert [record["step"] for record in steps] == list(range(1, len(steps) + 1))
    assert steps[newest["step"]]["batch_size"] > 8
    assert steps[newest["step"]]["gain"] > 1, "what was measured stays known"
    final = torch.load(second.folder / "model/train/model_epoch_final.pth", weights_only=True)
    for name, tensor in replayed(steps, samples).state_dict().items():
        assert torch.allclose(final[name], tensor, atol=1e-5), name


def test_a_training_may_decline(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("adaptive.py", arguments=["--epochs", "1"], adaptive="off")
    lab.size(1)
    lab.wait_for_the_end()
    assert [record["samples"] for record in lab.steps()] == [8] * 200
    assert not any("batch_size" in record for record in lab.steps())


def test_more_than_fits_is_told_and_the_next_attempt_computes_less_at_once(make_lab: Callable[..., Lab]) -> None:
    arguments = ["--samples", "4000", "--step-seconds", "0.01", "--fits", "20"]
    first = make_lab("adaptive.py", arguments=arguments)
    first.size(1)
    [end] = wait_until(lambda: [*first.exits().values()], first.story)
    assert (end["by_script"], end["error"]["kind"]) == (True, "OutOfMemoryError")
    told = end["error"]["micro_batch"]
    assert (told["kind"], 20 < told["samples"] <= 32) == ("virtual GPU (CPU)", True)

    second = make_lab("adaptive.py", arguments=arguments, micro_batch_limits={told["kind"]: told["samples"] // 2})
    second.size(1)
    second.wait_for_the_end()
    assert second.journal("finished")
    assert max(record["batch_size"] for record in second.steps()) > 20, "in more micro-batches"
