"""Trained models as ONNX, exported for real and read by the `onnx` package."""

from pathlib import Path

import onnx
import pytest
import torch
from _wmla import export
from callbacks import Callback
from onnx.reference import ReferenceEvaluator

from tests.runtime.compat.conftest import MakeLab
from tests.runtime.compat.test_fabric_hooks import BATCH, build, trained
from tests.runtime.compat.test_wmla_ranks import weights_of
from tests.waiting import wait_until

#: The exporter is slow where many tests run at once, and warns of what torch itself does.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.mark.parametrize("spelling", ["enable_onnx", "save_to_onnx"])
def test_the_trained_model_is_saved_as_onnx(
    spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """For batches of any size, in one file, and computing what the model computes."""
    monkeypatch.setenv("RESULT_DIR", str(tmp_path))
    fabric = trained(1, **{spelling: True})
    file = tmp_path / "model" / "trained_model.onnx"
    onnx.checker.check_model(onnx.load(file), full_check=True)
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    inputs = torch.randn(5, 4)
    [outputs] = ReferenceEvaluator(str(file)).run(None, {"input": inputs.numpy()})
    torch.testing.assert_close(torch.from_numpy(outputs), fabric.model(inputs).detach())
    assert "[torch.onnx]" not in capfd.readouterr().out, "the log is the script's"


class Named(torch.nn.Module):
    """A model of two inputs in a dict, for batches of one size."""

    def forward(self, given: dict[str, torch.Tensor]) -> torch.Tensor:
        return given["one"].reshape(2, 3) + given["other"]


def test_inputs_in_a_dict_and_a_fixed_batch_can_be_saved_too(tmp_path: Path) -> None:
    sample = {"one": torch.rand(2, 3), "other": torch.rand(3)}
    assert export.write_onnx(Named(), lambda: sample, tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(model)
    assert len(model.graph.input) == 2


def test_weights_too_large_for_one_file_lie_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_ONE_FILE_BYTES", 0)
    assert export.write_onnx(torch.nn.Linear(99, 99), lambda: torch.ones(2, 99), tmp_path / "model.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    onnx.checker.check_model(str(tmp_path / "model.onnx"))


class Undecided(torch.nn.Module):
    """A model whose course depends on the numbers that it gets."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * 2 if inputs.sum() > 3 else inputs


def test_what_onnx_cannot_hold_is_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="not saved as ONNX: TorchExportError: "):
        assert not export.write_onnx(Undecided(), lambda: torch.ones(2, 1), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_the_first_rank_leaves_the_trained_model_as_onnx(make_job: MakeLab) -> None:
    lab = make_job("newer.py", ["--epochs", "1", "--onnx"], max_slots=2, min_slots=2)
    lab.size(2)
    wait_until(lambda: lab.journal("finished"), lab.story)
    wait_until(lambda: len(lab.exits()) == 2, lab.story, 200.0)
    assert [end["code"] for end in lab.exits().values()] == [0, 0], "however long the export takes"
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    model.load_state_dict(weights_of(lab))
    images = torch.rand(3, 1, 28, 28)
    evaluator = ReferenceEvaluator(str(lab.folder / "model" / "trained_model.onnx"))
    [outputs] = evaluator.run(None, {"input": images.numpy()})
    torch.testing.assert_close(torch.from_numpy(outputs), model(images).detach())


class Exporter(Callback):
    """A model that exports itself, as in WMLA's sample of 2.3.0, whatever it was built with."""

    def __init__(self) -> None:
        self.told: list[tuple[int, bool, bool]] = []

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        self.told.append((epoch, save_model, self.model.training))


@pytest.mark.parametrize("has_gpu", [False, True])
def test_a_callback_may_export_the_model_in_the_end_without_enable_onnx(
    monkeypatch: pytest.MonkeyPatch, has_gpu: bool
) -> None:
    exporter = Exporter()
    fabric = build(user_callback=exporter)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    fabric.train(2, BATCH, validation_freq=0)
    assert exporter.told == [(0, False, False), (1, has_gpu, False)]


def test_a_callback_that_would_export_without_the_packages_is_told_which(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = Exporter()
    fabric = build(user_callback=exporter)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    with pytest.warns(UserWarning, match="onnx and onnxscript cannot be imported"):
        fabric.train(1, BATCH)
    assert exporter.told == [(0, False, False)]
