"""Check that runtime/README.md and examples/ run: off the cluster as they are, and one example through resizes."""

import copy
import difflib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tidepool.torch import Session
from torch.nn.functional import cross_entropy

from datasets.digits import write_digits
from tests.runtime.lab import OFF_CLUSTER, RUNTIME, Lab

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    write_digits(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("script", "arguments"), [("native-minimal/train.py", []), ("native-digits/train.py", ["--epochs", "1"])]
)
def test_it_runs_off_the_cluster(digits: Path, script: str, arguments: list[str]) -> None:
    environment = {**OFF_CLUSTER, "DATA_DIR": str(digits), "EPOCHS": "1"}
    command = [sys.executable, str(EXAMPLES / script), *arguments]
    ended = subprocess.run(command, check=True, env=environment, timeout=100, capture_output=True, text=True)
    assert "minimal" in script or "Epoch 1: " in ended.stdout


@pytest.mark.parametrize("name", ["digits", "gpt"])
def test_a_loop_of_ones_own_needs_few_changes(name: str) -> None:
    folder = EXAMPLES / "own-loop"
    before, after = ((folder / f"{name}{kind}.py").read_text().splitlines() for kind in ("_plain", ""))
    changes = [line for line in difflib.unified_diff(before, after, lineterm="", n=0) if line[0] in "+-"][2:]
    shown = (EXAMPLES.parent / "docs/user/own-loop.md").read_text()
    assert len([line for line in changes if line[0] == "+"]) <= 5
    assert [line for line in changes if line not in shown] == []


@pytest.mark.parametrize("name", ["digits", "gpt"])
def test_a_loop_of_ones_own_learns_on_two_gpus(make_lab: Callable[..., Lab], digits: Path, name: str) -> None:
    folder = str(EXAMPLES / "own-loop")
    lab = make_lab(f"{name}.py", arguments=["--epochs", "2"], data_dir=str(digits), code_folder=folder, min_slots=2)
    lab.size(2)
    lab.wait_for_the_end()

    losses = [record["loss"] for record in lab.steps()]
    assert losses[-1] < 0.8 * losses[0]
    assert lab.steps()[-1]["world_size"] == 2
    assert all(end["code"] == 0 for end in lab.exits().values()), lab.story()


def test_it_learns_on_a_changing_number_of_gpus(make_lab: Callable[..., Lab], digits: Path) -> None:
    lab = make_lab(
        "train.py", arguments=["--epochs", "20"], data_dir=str(digits), code_folder=str(EXAMPLES / "native-digits")
    )
    for size in (1, 2):
        lab.size(size)
        lab.wait_for_size(size)
    lab.wait_for_the_end()

    assert lab.steps()[-1]["test_accuracy"] > 95
    rates = [record["learning_rate"] for record in lab.steps()]
    assert rates[0] < max(rates) > rates[-1], "the schedule was followed, up and down"
    names = sorted(path.name for path in (lab.folder / "model/train").iterdir())
    assert names == [f"model_epoch_final{name}.pth" for name in ("", "_average", "_optimizer_state")]


def snippets() -> list[str]:
    """Return the snippets of the section on what scripts may do."""
    text = (RUNTIME / "README.md").read_text()
    section = text[text.index("## What scripts may do") : text.index("## What is guaranteed")]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def names_of_the_readme() -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    data = torch.utils.data.TensorDataset(torch.randn(24, 4), torch.randint(0, 3, (24,)))
    optimizer = torch.optim.Adam(model.parameters())
    names: dict[str, Any] = {"torch": torch, "nn": torch.nn, "Session": Session, "cross_entropy": cross_entropy}
    return {
        **names,
        "model": model,
        "optimizer": optimizer,
        "train_set": data,
        "epochs": 2,
        "options": {"effective_batch_size": 8},
    }


@pytest.mark.parametrize("code", snippets(), ids=lambda code: code.splitlines()[0][:50])
def test_a_snippet_of_the_readme_trains(code: str) -> None:
    names = names_of_the_readme()
    model = names["model"]
    before = copy.deepcopy(model.state_dict())
    exec(compile(code, "README.md", "exec"), names)
    session = names["session"]
    if session.position.step == 0:
        for _ in session.epochs(2):
            for step in session.steps(names["train_set"]):
                for inputs, labels in step:
                    step.backward(cross_entropy(session.model(inputs), labels))
    assert session.position.step == 6
    assert not all(before[name].equal(tensor) for name, tensor in model.state_dict().items())
