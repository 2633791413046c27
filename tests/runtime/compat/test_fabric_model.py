"""IBM WMLA's FabricModel: the demo's model trains in it, off the cluster and on it."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
import torch
from fabric_model import FabricModel

from datasets.digits import write_digits
from tests.runtime.lab import OFF_CLUSTER, RUNTIME, Lab

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits-cnn"


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    write_digits(tmp_path)
    return tmp_path


@pytest.fixture
def example_on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    sys.modules.pop("digits_cnn", None)


def test_the_example_runs_off_the_cluster(digits: Path) -> None:
    modules = f"{RUNTIME}:{RUNTIME / 'compat' / 'wmla'}"
    environment = {**OFF_CLUSTER, "PYTHONPATH": modules, "DATA_DIR": str(digits)}
    command = [sys.executable, str(EXAMPLE / "elastic-main.py"), "--epochs", "1"]
    subprocess.run(command, check=True, env=environment, timeout=100)


def test_the_example_really_learns_on_a_changing_number_of_gpus(
    make_lab: Callable[..., Lab], digits: Path, example_on_path: None
) -> None:
    lab = make_lab(
        "elastic-main.py",
        arguments=["--epochs", "25"],
        data_dir=str(digits),
        code_folder=str(EXAMPLE),
        compat=["wmla"],
    )
    for size in (1, 3, 2):
        lab.size(size)
        lab.wait_for_size(size)
    lab.wait_for_the_end()

    log = "".join(path.read_text() for path in lab.folder.glob("log/*/stdout"))
    assert log.count("Epoch ") == 25
    assert "Epoch 25 of 25 on 2 GPUs: test loss" in log
    shown = lab.steps()[-1]["test_accuracy"]
    assert shown > 95
    assert accuracy_of(lab.folder / "model/train/model_epoch_final.pth", digits) == pytest.approx(shown)


def accuracy_of(weights: Path, data: Path) -> float:
    from digits_cnn import DigitsCNN

    model = DigitsCNN()
    model.load_state_dict(torch.load(weights, weights_only=True))
    with numpy.load(data / "test.npz") as arrays, torch.no_grad():
        answers = model(torch.from_numpy(arrays["images"])).argmax(1).numpy()
        return 100.0 * float((answers == arrays["labels"]).mean())


def test_resource_hints_are_ignored_with_a_warning() -> None:
    data = torch.utils.data.TensorDataset(torch.ones(8, 1), torch.ones(8, 1))
    model = torch.nn.Linear(1, 1)
    fabric = FabricModel(
        model, lambda: (data, data), torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1)
    )
    with pytest.warns(UserWarning, match="worker_memory"):
        fabric.train(1, 4, 2, worker_memory="16G")
    assert float(model(torch.ones(1, 1)).detach()) != 0
