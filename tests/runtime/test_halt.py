"""A training that is asked to halt stops after a step and continues exactly there, on any number of ranks."""

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.runtime.lab import Lab
from tests.waiting import wait_until

Make = Callable[..., Lab]


def halted(lab: Lab) -> int:
    """Halt it; returns its last step."""
    lab.halt()
    wait_until(lambda: lab.journal("halted") or lab.journal("finished"), lab.story)
    wait_until(lambda: len(lab.exits()) == len(lab.started()), lab.story)
    assert lab.journal("halted"), lab.story()
    return int(lab.journal("halted")[-1]["step"])


def newest(lab: Lab) -> list[str]:
    return [str(lab.folder / entry["path"]) for entry in reversed(lab.journal("checkpoint"))]


def samples(*labs: Lab) -> Counter[str]:
    files = [path for lab in labs for path in lab.folder.glob("log/*/samples")]
    return Counter(line for path in files for line in path.read_text().splitlines())


@pytest.mark.parametrize("exactness", ["sum", "bitwise"])
def test_nothing_is_lost_or_made_twice(make_lab: Make, exactness: str) -> None:
    options = ["--epochs", "3", "--no-evaluation"]
    exact = {"exactness": exactness, "virtual_ranks": 4 if exactness == "bitwise" else None}
    first = make_lab(
        "mlp.py", arguments=[*options, "--step-seconds", "0.2"], checkpoint_seconds=0.0, min_slots=3, **exact
    )
    first.size(3)
    first.wait_for_size(3)
    first.wait_for_steps(3)
    step = halted(first)
    assert {(exited["code"], exited["signal"]) for exited in first.exits().values()} == {(0, None)}
    assert [record["step"] for record in first.steps()] == list(range(1, step + 1))
    assert [entry["step"] for entry in first.journal("checkpoint")] == [step], "no other one was asked for"

    second = make_lab("mlp.py", arguments=options, checkpoints=newest(first), **exact)
    second.size(2)
    second.wait_for_the_end()
    assert [record["step"] for record in second.steps()] == list(range(step + 1, 3 * 17 + 1))
    once = Counter(f"{epoch} {index}" for epoch in range(3) for index in range(1030))
    assert samples(first, second) == once, second.story()
    alone = make_lab("mlp.py", arguments=options, **exact)  # not before: ranks of the same name share a mark
    alone.size(1)
    alone.wait_for_the_end()
    ends = [torch.load(lab.folder / "model/train/model_epoch_final.pth", weights_only=True) for lab in (second, alone)]
    if exactness == "bitwise":
        assert all(ends[0][name].equal(ends[1][name]) for name in ends[0])
    assert all(ends[0][name].allclose(ends[1][name], atol=1e-5) for name in ends[0])


def test_what_the_script_does_after_an_epoch_is_done_once(make_lab: Make) -> None:
    """Each epoch has one step: the halt waits until the script has reported about it."""
    options = ["--epochs", "150", "--samples", "64"]
    first = make_lab("mlp.py", arguments=[*options, "--step-seconds", "0.05"], min_slots=2)
    first.size(2)
    first.wait_for_size(2)
    first.wait_for_steps(2)
    step = halted(first)
    second = make_lab("mlp.py", arguments=options, checkpoints=newest(first))
    second.size(1)
    second.wait_for_the_end()
    records = [*first.steps(), *second.steps()]
    assert [record["step"] for record in records] == list(range(1, 151))
    assert len(first.steps()) == step
    assert all("test_accuracy" in record for record in records)
    rates = [record["learning_rate"] for record in records]
    assert rates == pytest.approx([0.01 * 0.9**epoch for epoch in range(150)]), "the schedule made each step once"


def test_a_rank_that_dies_while_it_saves_the_state_does_not_lose_it(make_lab: Make) -> None:
    """Rank 0 is killed at the halt; the others go on, and halt again."""
    lab = make_lab(
        "mlp.py",
        arguments=["--epochs", "100", "--no-evaluation", "--step-seconds", "0.02"],
        environment={"TIDEPOOL_FAULT": "halt@a.0.:1:kill,checkpoint-write@a.1.:1:raise"},
        checkpoint_seconds=0.0,
        min_slots=3,
    )
    lab.size(3)
    lab.wait_for_steps(3)
    step = halted(lab)
    codes = {member_id.split(".")[1]: (exited["code"], exited["signal"]) for member_id, exited in lab.exits().items()}
    assert codes == {"0": (None, signal.SIGKILL), "1": (0, None), "2": (0, None)}
    assert [record["step"] for record in lab.steps()] == list(range(1, step + 1))
    assert lab.journal("checkpoint_failed"), "and a disk that was full for a moment did not matter"
    assert [entry["step"] for entry in lab.journal("checkpoint")] == [step]


def test_a_training_begins_with_the_weights_of_another_and_a_fresh_optimizer(make_lab: Make, tmp_path: Path) -> None:
    first = make_lab("mlp.py", arguments=["--epochs", "1", "--no-evaluation"])
    first.size(1)
    first.wait_for_the_end()
    final = first.folder / "model/train/model_epoch_final.pth"
    second = make_lab("mlp.py", arguments=["--epochs", "1", "--no-evaluation"], initial_weights=str(final))
    second.size(2)
    second.wait_for_the_end()
    assert [record["step"] for record in second.steps()] == list(range(1, 18))
    assert second.steps()[0]["loss"] < 0.9 * first.steps()[0]["loss"], "it has learned already"

    other = torch.load(final, weights_only=True)
    other["0.weight"] = torch.zeros(32, 20)
    torch.save(other, tmp_path / "other.pth")
    third = make_lab("mlp.py", initial_weights=str(tmp_path / "other.pth"))
    third.size(1)
    wait_until(lambda: third.exits(), third.story)
    [failed] = third.exits().values()
    assert failed["error"]["kind"] == "Refusal"
    assert failed["error"]["message"].endswith("1 have another shape: 0.weight (32 x 20 there, 64 x 20 here)")
