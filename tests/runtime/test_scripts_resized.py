"""Scripts that use all that they may, through resizes and deaths: every rank ends as one that was undisturbed."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.missing import leave_out
from tests.runtime.lab import SCRIPTS, Lab
from tests.runtime.off_cluster import run_off_cluster
from tests.runtime.test_script_features import assert_equal
from tests.waiting import wait_until

ARGUMENTS = ["--epochs", "4", "--samples", "1030"]
STEPS = 4 * 17
#: Until the test waits for the end: resizes have all the time that they need, on a busy machine too.
SLOWLY = ["--step-seconds", "0.2"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what the script leaves when plain python runs it, off any cluster."""
    out = tmp_path_factory.mktemp("alone") / "result.pth"
    run_off_cluster(SCRIPTS / "everything.py", *ARGUMENTS, "--out", out)
    return out


def assert_all_ended_as(alone: Path, lab: Lab, ranks: int) -> None:
    expected, drawn = load(alone)
    results = sorted(lab.folder.glob("result-*.pth"))
    assert len(results) == ranks, lab.story()
    assert [record["step"] for record in lab.steps()] == list(range(1, STEPS + 1))
    for path in results:
        result, numbers = load(path)
        assert_equal(result, expected, 2e-5)
        assert numbers == drawn[-len(numbers) :], "numbers drawn outside of steps go on where they were"


def load(path: Path) -> tuple[dict[str, Any], list[Any]]:
    return torch.load(path, weights_only=True), json.loads(Path(f"{path}.json").read_text())


def test_resizes_change_nothing(make_lab: Callable[..., Lab], alone: Path) -> None:
    lab = make_lab("everything.py", arguments=[*ARGUMENTS, *SLOWLY])
    for size in (1, 3, 2, 4):
        lab.size(size)
        lab.wait_for_size(size)
        lab.wait_for_steps(2)
    lab.wait_for_the_end()

    assert_all_ended_as(alone, lab, 4)
    names = sorted(path.name for path in (lab.folder / "model/train").iterdir())
    assert names == [f"model_epoch_final{name}.pth" for name in ("", "_average", "_optimizer_state")]


@pytest.mark.parametrize("victim", ["a.0.1", "a.2.3"], ids=["rank-0", "another"])
@pytest.mark.parametrize("passage", [5, 17], ids=["in-an-epoch", "at-its-end"])
def test_a_survivor_that_missed_a_result_does_what_follows_it_once(
    make_lab: Callable[..., Lab], alone: Path, victim: str, passage: int
) -> None:
    """One dies, one has the step's result and one has not: the last one receives it."""
    late = "a.1.2" if victim == "a.0.1" else "a.0.1"
    deaths = f"step-result@{victim}:{passage}:kill,step-result@{late}:{passage}:raise"
    lab = make_lab(
        "everything.py", arguments=ARGUMENTS, environment={"TIDEPOOL_FAULT": deaths}, min_slots=3, max_slots=3
    )
    lab.size(3)
    lab.wait_for_the_end()

    assert lab.exits()[victim]["signal"]
    assert_all_ended_as(alone, lab, lab.active()["world_size"])


def test_rank_0_dies_with_the_sums_before_its_optimizers_have_stepped(
    make_lab: Callable[..., Lab], alone: Path
) -> None:
    deaths = "optimizer@a.0.1:6:kill,optimizer@a.2.3:20:kill"
    lab = make_lab("everything.py", arguments=ARGUMENTS, environment={"TIDEPOOL_FAULT": deaths}, min_slots=3)
    lab.size(3)
    lab.wait_for_the_end()

    assert [lab.exits()[member_id]["signal"] for member_id in ("a.0.1", "a.2.3")] == [9, 9]
    assert_all_ended_as(alone, lab, lab.active()["world_size"])


@pytest.mark.long
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_model_through_resizes_and_a_death(
    make_lab: Callable[..., Lab], tmp_path: Path, backend: str
) -> None:
    """`aot_eager` only traces; `inductor`, the default, also generates code, for which it needs a C++ compiler."""
    if backend == "inductor" and not shutil.which("g++"):
        leave_out("no g++ on this machine")
    # Long enough for a rank in place of the victim: it imports torch and compiles before it joins.
    epochs = 12
    arguments = ["--epochs", str(epochs), "--samples", "1030", "--no-evaluation"]
    slowly = ["--step-seconds", "0.2", "--compile", backend]
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "compiled")}
    lab = make_lab("mlp.py", arguments=[*arguments, *slowly], environment=cache)
    for size in (1, 3, 2):
        lab.size(size)
        wait_until(lambda size=size: lab.active()["world_size"] == size, lab.story)
        lab.wait_for_steps(2)
    victim = lab.member_ids()[0]
    lab.kill(victim)
    wait_until(lambda: victim not in lab.member_ids() and lab.active()["world_size"] == 2, lab.story)
    lab.wait_for_the_end()

    out = tmp_path / "plain.pth"
    run_off_cluster(SCRIPTS / "mlp.py", *arguments, "--out", out)
    weights = torch.load(lab.folder / "model/train/model_epoch_final.pth", weights_only=True)
    assert_equal(weights, torch.load(out, weights_only=True), 2e-5)
    assert [record["step"] for record in lab.steps()] == list(range(1, epochs * 17 + 1))
    assert [end["signal"] for end in lab.exits().values() if end["signal"]] == [signal.SIGKILL]
    assert any((tmp_path / "compiled").rglob("*.so")) == (backend == "inductor")
