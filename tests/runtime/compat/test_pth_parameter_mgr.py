"""Check that settings of the model's form reach an unchanged script by IBM's `pth_parameter_mgr`."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pth_parameter_mgr as manager
import pytest
import torch
from fabric_model import FabricModel
from tidepool.env import RankContext, rank_environment
from tidepool.protocol import to_json

from datasets.inspection.findings import ROLES
from models_registry.model_settings import SETTINGS
from tests.datasets.cifar_files import write_cifar
from tests.runtime.lab import OFF_CLUSTER, RUNTIME, Lab
from tests.runtime.process_tree import launch_spec

EXAMPLE = Path(__file__).parents[3] / "examples" / "resnet-cifar"
FORM = {setting.name: setting for setting in SETTINGS}
Choose = Callable[..., None]


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    return write_cifar(tmp_path / "cifar10", per_batch=20)


@pytest.fixture
def choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Choose:
    """Choose settings as if this process were a rank of a job with them."""

    def chosen(data: Path | None = None, **settings: Any) -> None:
        launch = launch_spec(tmp_path, "main.py", settings=settings, data_dir=str(data or tmp_path))
        file = tmp_path / "launch.json"
        file.write_text(json.dumps(to_json(launch)))
        context = RankContext(job=1, attempt=1, member_id="a.0.1", host="a", slot=0, address="127.0.0.1", launch=launch)
        for name, value in rank_environment(context, file).items():
            monkeypatch.setenv(name, value)

    return chosen


def model() -> torch.nn.Module:
    return torch.nn.Linear(2, 2)


@pytest.mark.parametrize("name", [name for name in FORM["optimizer"].choices if name != "SparseAdam"])
def test_every_optimizer_of_the_form_trains(choose: Choose, name: str) -> None:
    choose(optimizer=name, learning_rate=0.02)
    network = model()
    optimizer = manager.getOptimizer(network)
    network(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert type(optimizer).__name__ == name
    assert optimizer.param_groups[0]["lr"] == 0.02


def test_sparse_adam_is_made_too(choose: Choose) -> None:
    choose(optimizer="SparseAdam")
    assert isinstance(manager.getOptimizer(model()), torch.optim.SparseAdam)


def test_momentum_and_weight_decay_reach_the_optimizer(choose: Choose) -> None:
    choose(optimizer="SGD", momentum=0.9, weight_decay=0.001)
    [group] = manager.getOptimizer(model()).param_groups
    assert (group["momentum"], group["weight_decay"]) == (0.9, 0.001)


def test_what_an_optimizer_has_not_is_refused_by_its_words(choose: Choose) -> None:
    choose(optimizer="Rprop", weight_decay=0.1)
    with pytest.raises(ValueError, match="Rprop has no weight decay: leave it empty"):
        manager.getOptimizer(model())


def rates(schedule: Any, optimizer: torch.optim.Optimizer, epochs: int, loss: float | None = None) -> list[float]:
    found = []
    for _ in range(epochs):
        found.append(round(optimizer.param_groups[0]["lr"], 6))
        optimizer.step()
        schedule.step() if loss is None else schedule.step(loss)
    return found


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"lr_policy": "step", "step_size": 2, "gamma": 0.5}, [1, 1, 0.5, 0.5, 0.25]),
        ({"lr_policy": "multistep", "step_values": "1,3", "gamma": 0.1}, [1, 0.1, 0.1, 0.01, 0.01]),
        ({"lr_policy": "exponential", "gamma": 0.5}, [1, 0.5, 0.25, 0.125, 0.0625]),
        ({"lr_policy": "cosineannealing", "t_max": 4}, [1, 0.853553, 0.5, 0.146447, 0]),
        ({"lr_policy": "cosineannealing", "epochs": 2}, [1, 0.5, 0, 0.5, 1]),
    ],
)
def test_learning_rate_follows_the_policy_of_the_form(
    choose: Choose, settings: dict[str, Any], expected: list[float]
) -> None:
    choose(optimizer="SGD", learning_rate=1.0, **settings)
    optimizer = manager.getOptimizer(model())
    assert rates(manager.getLearningRate(optimizer), optimizer, 5) == expected


def test_learning_rate_falls_where_the_loss_does_not(choose: Choose) -> None:
    choose(optimizer="SGD", learning_rate=1.0, lr_policy="reducelronplateau", gamma=0.5)
    optimizer = manager.getOptimizer(model())
    assert rates(manager.getLearningRate(optimizer), optimizer, 13, loss=1.0)[-2:] == [1, 0.5]


def test_every_policy_of_the_form_is_known(choose: Choose) -> None:
    for policy in FORM["lr_policy"].choices:
        choose(lr_policy=policy, step_values="1")
        assert (manager.getLearningRate(manager.getOptimizer(model())) is None) == (policy == "fixed")


def test_multistep_without_its_epochs_says_what_is_missing(choose: Choose) -> None:
    choose(lr_policy="multistep")
    with pytest.raises(ValueError, match="needs step values"):
        manager.getOptimizer(model())


def test_a_schedule_is_one_however_often_it_is_asked_for(choose: Choose) -> None:
    choose(lr_policy="step")
    optimizer = manager.getOptimizer(model())
    assert manager.getLearningRate(optimizer) is manager.getLearningRate(optimizer) is manager.schedule_of(optimizer)


def test_a_fabric_model_follows_the_policy_after_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "DEFAULTS", {**manager.DEFAULTS, "lr_policy": "exponential", "learning_rate": 0.1})
    network = torch.nn.Linear(1, 1)
    data = torch.utils.data.TensorDataset(torch.ones(8, 1), torch.ones(8, 1))
    optimizer = manager.getOptimizer(network)
    FabricModel(network, lambda: (data, data), torch.nn.functional.mse_loss, optimizer).train(2, 4)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.95**2)


def test_epochs_and_batch_size_are_the_forms(choose: Choose) -> None:
    choose(epochs=7, batch_size=32)
    assert (manager.getEpoch(), manager.getTrainBatchSize(), manager.getTestBatchSize()) == (7, 32, 32)


def test_what_is_empty_in_the_form_gets_the_documented_defaults(choose: Choose) -> None:
    choose()
    optimizer = manager.getOptimizer(model())
    assert (type(optimizer).__name__, optimizer.param_groups[0]["lr"]) == ("SGD", 0.01)
    assert (manager.getEpoch(), manager.getTrainBatchSize(), manager.getLearningRate(optimizer)) == (10, 64, None)
    assert {name: FORM[name].name for name in manager.DEFAULTS} == {name: name for name in manager.DEFAULTS}


def test_folders_are_found_by_the_names_that_datasets_have(choose: Choose, cifar: Path) -> None:
    choose(data=cifar)
    assert manager.getTrainData(False) == str(cifar / "train_db")
    assert manager.getTestData(False) == str(cifar / "test_db")
    assert manager.getValData(False) == str(cifar), "it has no folder of its own"
    files = manager.getTestData(True)
    assert len(files) == 8
    assert files[0] == str(cifar / "test_db/cifar-10-batches-py/batches.meta")
    assert manager._FOLDERS == ROLES


@pytest.fixture
def example_on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    for name in ("small_resnet", "cifar"):
        sys.modules.pop(name, None)


def test_the_example_runs_off_the_cluster(cifar: Path) -> None:
    modules = f"{RUNTIME}:{RUNTIME / 'compat' / 'wmla'}"
    environment = {**OFF_CLUSTER, "PYTHONPATH": modules, "DATA_DIR": str(cifar)}
    command = [sys.executable, str(EXAMPLE / "elastic-main.py")]
    done = subprocess.run(command, check=True, env=environment, timeout=100, capture_output=True, text=True)
    assert done.stdout.count("Epoch ") == manager.DEFAULTS["epochs"]


def test_the_example_trains_by_the_form_on_a_changing_number_of_gpus(
    make_lab: Callable[..., Lab], cifar: Path, example_on_path: None
) -> None:
    settings = {"optimizer": "Adam", "learning_rate": 0.01, "lr_policy": "exponential", "epochs": 20, "batch_size": 8}
    lab = make_lab("elastic-main.py", data_dir=str(cifar), code_folder=str(EXAMPLE), compat=["wmla"], settings=settings)
    for size in (1, 3, 2):
        lab.size(size)
        lab.wait_for_size(size)
    lab.wait_for_the_end()

    log = "".join(path.read_text() for path in lab.folder.glob("log/*/stdout"))
    assert "Epoch 20 of 20 on 2 GPUs: test loss" in log
    steps = lab.steps()
    assert steps[-1]["test_accuracy"] > 50
    assert steps[-1]["learning_rate"] == pytest.approx(0.01 * 0.95**19)
    assert {step["samples"] for step in steps if step["cursor"] < 100} == {32}, "a batch of 8 on each of 4 GPUs"
