"""A prepared loop of a script's own: equal to Session to the bit, through resizes and SIGKILL of ranks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runtime.bits import different
from tests.runtime.disturbance import disturbed, final_weights
from tests.runtime.lab import SCRIPTS, Lab
from tests.runtime.off_cluster import run_off_cluster
from tests.waiting import wait_until

EPOCHS, SAMPLES, BATCH = 8, 290, 64
BATCHES = EPOCHS * -(-SAMPLES // BATCH)
ARGUMENTS = ["--epochs", str(EPOCHS), "--samples", str(SAMPLES), "--batch", str(BATCH)]
#: Drawn out until all has happened that shall.
STEP_SECONDS = ["--step-seconds", "0.1"]


def alone(out: Path, *arguments: str) -> dict[str, Any]:
    """Weights of the script run by plain python: one rank, never interrupted."""
    run_off_cluster(SCRIPTS / "own_loop.py", *ARGUMENTS, *arguments, "--out", out)
    return torch.load(out, weights_only=True)["model"]


def test_it_equals_a_session_to_the_bit(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    virtual = ["--virtual-ranks", "4"]
    expected = alone(tmp_path / "session.pth", "--kind", "session", *virtual)
    lab = make_lab(
        "own_loop.py",
        arguments=[*ARGUMENTS, *virtual, *STEP_SECONDS],
        environment={"TIDEPOOL_FAULT": "reduce@a.1.2:9:kill"},
        exactness="bitwise",
        virtual_ranks=4,
    )
    assert different(disturbed(lab, "a.1.2", BATCHES), expected) == []


@pytest.mark.parametrize(
    ("arguments", "death"),
    [
        (["--accumulate", "5", "--by-range"], "reduce@a.0.1:15"),
        # Five batches in an epoch: a group of four goes on in the next one.
        (["--accumulate", "4", "--by-hand"], "step-result@a.1.2:9"),
        (["--two"], "reduce@a.1.2:12"),
        (["--ignored"], "reduce@a.1.2:12"),
        (["--closure", "--by-range", "--by-hand"], "step-result@a.0.1:9"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_deaths_and_resizes_cost_nothing(
    make_lab: Callable[..., Lab], tmp_path: Path, arguments: list[str], death: str
) -> None:
    expected = alone(tmp_path / "alone.pth", *arguments)
    environment = {"TIDEPOOL_FAULT": f"{death}:kill"}
    lab = make_lab("own_loop.py", arguments=[*ARGUMENTS, *arguments, *STEP_SECONDS], environment=environment)
    final = disturbed(lab, death.split("@")[1].split(":")[0], BATCHES)
    first = "0." if "--two" in arguments else ""
    for name, tensor in expected.items():
        assert torch.allclose(final[first + name], tensor, atol=1e-5), name


def test_a_joiner_calls_its_model_before_it_is_ready_and_counts_none_of_it(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    """BatchNorm, dropout and the order of random numbers are as in one process that was never joined, to the bit."""
    exact = ["--virtual-ranks", "4", "--note-forwards"]
    lab = make_lab("own_loop.py", arguments=[*ARGUMENTS, *exact, *STEP_SECONDS], exactness="bitwise", virtual_ranks=4)
    lab.size(1)
    lab.wait_for_steps(3)
    [founder] = lab.member_ids()
    lab.size(2)
    lab.wait_for_size(2)
    [joiner] = {*lab.member_ids()} - {founder}
    lab.wait_for_steps(2)
    lab.wait_for_the_end()

    first = {name: notes_of(lab, name)[0] for name in (founder, joiner)}
    assert first[founder]["is_zero"] is False
    assert first[joiner] == {"is_zero": True, "has_joined": False}
    assert all(not note["is_zero"] for name in (founder, joiner) for note in notes_of(lab, name)[1:])
    expected = alone(tmp_path / "session.pth", "--kind", "session", *exact[:2])
    assert different(final_weights(lab), expected) == []


def notes_of(lab: Lab, member_id: str) -> list[dict[str, bool]]:
    [path] = lab.folder.glob(f"log/{member_id}.*/forwards")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_halt_in_an_accumulation_loses_nothing(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    arguments = ["--accumulate", "4", "--by-range"]
    expected = alone(tmp_path / "alone.pth", *arguments)
    first = make_lab("own_loop.py", arguments=[*ARGUMENTS, *arguments, *STEP_SECONDS], min_slots=2)
    first.size(2)
    first.wait_for_size(2)
    first.wait_for_steps(6)
    first.halt()
    wait_until(lambda: first.journal("halted") and len(first.exits()) == len(first.started()), first.story)
    step = first.journal("halted")[-1]["step"]
    checkpoint = str(first.folder / first.journal("checkpoint")[-1]["path"])
    second = make_lab("own_loop.py", arguments=[*ARGUMENTS, *arguments], checkpoints=[checkpoint])
    second.size(2)
    second.wait_for_the_end()
    assert [record["step"] for record in second.steps()] == list(range(step + 1, BATCHES + 1))
    final = final_weights(second)
    for name, tensor in expected.items():
        assert torch.allclose(final[name], tensor, atol=1e-5), name
