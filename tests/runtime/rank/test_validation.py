"""A run that validates loads the weights, measures them on held-out samples, and trains nothing."""

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tidepool.torch.rank.metrics_file import MetricsFile
from tidepool.torch.rank.validation import Measuring
from torch.nn.functional import cross_entropy, mse_loss

from tests.runtime.lab import SCRIPTS, Lab
from tests.waiting import wait_until

SCRIPT = "validated.py"
WEIGHTS = Path("model", "train", "model_epoch_final.pth")


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Weights as a training leaves them, other than those that the script begins with."""
    model = _script(monkeypatch)["model"]
    torch.manual_seed(11)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    return tmp_path / "weights.pth"


def _validate(make_lab: Callable[..., Lab], weights: Path, split: str, on: str) -> tuple[Lab, dict[str, Any]]:
    lab = make_lab(SCRIPT, arguments=["--on", on], initial_weights=str(weights), validate=split)
    lab.size(1)
    lab.wait_for_the_end()
    return lab, json.loads((lab.folder / "validation.json").read_text())


def _script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return a script's functions and model, off the cluster: what asks for no validation trains."""
    monkeypatch.setattr(sys, "argv", [SCRIPT, "--on", "nothing"])
    return runpy.run_path(str(SCRIPTS / SCRIPT))


def _by_hand(weights: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    found = _script(monkeypatch)
    found["model"].load_state_dict(torch.load(weights))
    found["model"].eval()
    return found


def test_it_measures_what_the_trained_model_answers(
    make_lab: Callable[..., Lab], trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = _by_hand(trained, monkeypatch)
    for split, count in (("validation", 300), ("testing", 70)):
        lab, result = _validate(make_lab, trained, split, "splits")
        inputs, labels = script["split"](split).tensors
        with torch.no_grad():
            outputs = script["model"](inputs)
        assert (result["split"], result["samples"]) == (split, count)
        assert result["loss"] == pytest.approx(cross_entropy(outputs, labels).item(), rel=1e-5)
        assert result["accuracy"] == pytest.approx(100 * (outputs.argmax(1) == labels).double().mean().item())
        assert sum(map(sum, result["confusion"])) == count
        assert [sum(row) for row in result["confusion"]] == labels.bincount(minlength=3).tolist()
        [record] = lab.steps()
        assert (record["step"], record["progress"]) == (count, 1.0)
        assert not (lab.folder / WEIGHTS).exists()
        assert "after the loop" in next(lab.folder.glob("log/*/stdout")).read_text()


def test_it_tells_now_and_then_how_many_samples_are_measured(tmp_path: Path) -> None:
    seconds = 0.0
    measuring = Measuring(MetricsFile(tmp_path), 1000, clock=lambda: seconds)
    for _ in range(10):
        seconds += 0.2
        measuring.add(100)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [300, 600, 900, 1000]
    assert [record["progress"] for record in records] == [0.3, 0.6, 0.9, 1.0]
    assert [record["samples_per_second"] for record in records] == pytest.approx([500.0] * 4)


def test_a_script_with_one_held_out_set_is_measured_on_that(make_lab: Callable[..., Lab], trained: Path) -> None:
    _, result = _validate(make_lab, trained, "testing", "one")
    assert (result["split"], result["samples"]) == ("held-out", 40)


def test_what_is_no_classifier_has_a_loss_alone(
    make_lab: Callable[..., Lab], trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, result = _validate(make_lab, trained, "validation", "regression")
    script = _by_hand(trained, monkeypatch)
    inputs, labels = script["samples"](40, 6).tensors
    with torch.no_grad():
        loss = mse_loss(script["model"](inputs)[:, 0], labels.float()).item()
    assert result["loss"] == pytest.approx(loss, rel=1e-5)
    assert (result["accuracy"], result["confusion"]) == (None, None)


def test_a_script_that_says_nothing_fails_with_what_to_add(make_lab: Callable[..., Lab], trained: Path) -> None:
    lab = make_lab(SCRIPT, arguments=["--on", "nothing"], initial_weights=str(trained), validate="validation")
    lab.size(1)
    error = wait_until(
        lambda: next((end["error"] for end in lab.exits().values() if end.get("error")), None), lab.story
    )
    assert "call session.validate_on(dataset, loss) before session.epochs" in error["message"]
