"""Exactness through real processes: `bitwise` gives the same bits however a training is resized; `sum` does not."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tests.runtime.bits import different
from tests.runtime.lab import SCRIPTS, Lab
from tests.runtime.off_cluster import start_off_cluster
from tests.waiting import wait_until

VIRTUAL_RANKS = 4
EPOCHS = 20
STEPS_PER_EPOCH = 6  # 159 samples in batches of 30: the last one has 9, fewer than 4 virtual ranks share evenly


@contextmanager
def alone(out: Path, *arguments: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """Plain python runs the script, off any cluster: one rank, never interrupted. Yields what it saves, once asked."""
    process = start_off_cluster(SCRIPTS / "cnn.py", *arguments, "--out", out)

    def saved() -> dict[str, Any]:
        process.join(150)
        assert process.exitcode == 0
        return dict(torch.load(out, weights_only=True))

    try:
        yield saved
    finally:
        process.kill()


def final(lab: Lab) -> dict[str, Any]:
    folder = lab.folder / "model" / "train"
    return {
        "model": torch.load(folder / "model_epoch_final.pth", weights_only=True),
        "optimizer": torch.load(folder / "model_epoch_final_optimizer_state.pth", weights_only=True),
        "losses": [record["loss"] for record in lab.steps()],
    }


def disturbed(
    make_lab: Callable[..., Lab], changes: list[tuple[int, int | None]], arguments: list[str], **launch: Any
) -> Lab:
    """A training that has gone through `changes`: sizes, and there the death of a rank, which is replaced."""
    lab = make_lab("cnn.py", arguments=[*arguments, "--slow-until", "over"], **launch)
    for size, victim in changes:
        lab.size(size)
        lab.wait_for_size(size)
        lab.wait_for_steps(2)  # the first one after a growth is computed by the old ranks alone
        if victim is not None:
            member_id = lab.member_ids()[victim]
            lab.kill(member_id)
            wait_until(lambda member_id=member_id: member_id not in lab.member_ids(), lab.story)
            lab.wait_for_size(size)
            lab.wait_for_steps(2)
    (lab.folder / "over").touch()
    lab.wait_for_the_end()
    return lab


def test_bitwise_gives_the_same_bits_through_resizes_and_deaths_and_sum_does_not(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    arguments = ["--epochs", str(EPOCHS), "--rank-batch", "5"]
    bitwise = ["--virtual-ranks", str(VIRTUAL_RANKS)]
    with (
        alone(tmp_path / "bitwise.pth", *arguments, *bitwise) as exactly,
        alone(tmp_path / "sum.pth", *arguments) as summed_up,
    ):
        exact = disturbed(
            make_lab,
            [(1, None), (2, None), (4, 0), (3, None), (2, 1), (4, None), (1, None)],
            arguments,
            exactness="bitwise",
            virtual_ranks=VIRTUAL_RANKS,
        )
        summed = disturbed(make_lab, [(1, None), (4, None), (1, None)], arguments)
        reference, uninterrupted = exactly(), summed_up()

    steps = exact.steps()
    assert [record["step"] for record in steps] == list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
    assert {record["world_size"] for record in steps} == {1, 2, 3, 4}
    assert sum(entry["signal"] == signal.SIGKILL for entry in exact.exits().values()) == 2
    found = final(exact)
    assert different(found["model"], reference["model"]) == []
    assert different(found["optimizer"], reference["optimizer"]) == []
    assert found["losses"][-len(reference["losses"]) :] == reference["losses"]
    names = different(final(summed)["model"], uninterrupted["model"])
    assert any("running_mean" in name for name in names), "else this test could not tell the two apart"
    assert any("weight" in name for name in names)


def test_a_step_that_one_survivor_has_and_the_other_receives_is_the_same_to_the_bit(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    arguments = ["--epochs", "3"]
    deaths = "step-result@a.0.1:9:kill,step-result@a.1.2:9:raise,reduce@a.2.3:14:kill"
    with alone(tmp_path / "alone.pth", *arguments, "--virtual-ranks", "4") as exactly:
        lab = make_lab(
            "cnn.py",
            arguments=arguments,
            environment={"TIDEPOOL_FAULT": deaths},
            min_slots=3,
            exactness="bitwise",
            virtual_ranks=4,
        )
        lab.size(3)
        lab.wait_for_the_end()
        reference = exactly()

    assert {member_id for member_id, end in lab.exits().items() if end["signal"]} == {"a.0.1", "a.2.3"}
    found = final(lab)
    assert different({**found, "losses": found["losses"][-len(reference["losses"]) :]}, reference) == []
