"""Each option of WMLA's FabricModel, in one process: hooks, callbacks and loggers of both generations."""

import inspect
import json
import math
import re
import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from _wmla import export
from callbacks import Callback, LoggerCallback
from edtcallback import EDTLoggerCallback, EDTTrainCallback
from fabric_model import FabricModel
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, TensorDataset

SAMPLES, BATCH, EFFECTIVE = 50, 8, 20
#: Steps of an epoch, and mini-batches of one.
STEPS, BATCHES = 3, 7


def dataset() -> TensorDataset:
    inputs = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(0))
    return TensorDataset(inputs, (inputs.sum(1) > 0).long())


def datasets() -> tuple[Dataset, Dataset]:
    return dataset(), dataset()


def build(**options: Any) -> FabricModel:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return FabricModel(model, datasets, cross_entropy, optimizer, **options)


def trained(epochs: int = 2, train: dict[str, Any] | None = None, **options: Any) -> FabricModel:
    fabric = build(**options)
    fabric.train(epochs, BATCH, 3, effective_batch_size=EFFECTIVE, **(train or {}))
    return fabric


def weights(fabric: FabricModel) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in fabric.model.parameters()])


def step_hook(model: Any, data: Any, eva: Any, train_loader: Any, fn_args: Any) -> tuple[float, torch.Tensor]:
    """A hook as in WMLA's documents: everything but the optimizer's step."""
    inputs, labels = data
    model.get_optimizer().zero_grad()
    outputs = model(inputs)
    loss = model.get_loss_function()(outputs, labels)
    loss.backward()
    return eva(outputs, labels), loss


# --- the constructor ---


def test_the_later_spellings_are_the_same_model() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    later = FabricModel(model, datasets_function=datasets, loss_function=cross_entropy, optimizer=optimizer)
    later.train(2, BATCH, 3, effective_batch_size=EFFECTIVE)
    assert torch.equal(weights(later), weights(trained()))


def test_arguments_by_position_are_wmlas() -> None:
    older = [
        *("model", "datasets_fn", "loss_fn", "optimizer", "driver_logger", "worker_logger", "user_callback"),
        *("enable_onnx", "fn_step_train", "fn_test", "scaleup_function"),
    ]
    of_train = [
        *("epoch_number", "batch_size", "engines_number", "num_dataloader_threads", "validation_freq"),
        *("checkpoint_freq", "effective_batch_size", "validation_batch_size"),
    ]
    assert list(inspect.signature(FabricModel).parameters)[: len(older)] == older
    assert list(inspect.signature(FabricModel.train).parameters)[1 : len(of_train) + 1] == of_train


def test_every_argument_of_the_newer_generation_is_taken() -> None:
    model = torch.nn.Linear(4, 2)
    given = {
        "metrics": None,
        "worker_logger_callback": NewRecorder(),
        "driver_logger_callback": NewRecorder(),
        "save_to_onnx": False,
        "fn_batch_collate": None,
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.warns(UserWarning, match="ignores keras_custom_objects: it is for Keras"):
        fabric = FabricModel(model, datasets, cross_entropy, optimizer, **given, keras_custom_objects={})
    fabric.train(1, BATCH)
    assert len(given["worker_logger_callback"].train) == len(given["driver_logger_callback"].train) == BATCHES


class Movable(torch.nn.Linear):
    moved = False

    def cuda(self, device: Any = None) -> Any:
        self.moved = True
        return self


@pytest.mark.parametrize("has_gpu", [False, True])
def test_the_scripts_model_is_moved_to_the_gpu_and_not_wrapped(monkeypatch: pytest.MonkeyPatch, has_gpu: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    model = Movable(4, 2)
    fabric = FabricModel(model, datasets, cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    assert fabric.model is model
    assert model.moved is has_gpu


@pytest.mark.parametrize("newer", [False, True])
def test_by_position_both_generations_are_told_apart(newer: bool) -> None:
    logger = NewRecorder() if newer else Recorder()
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    FabricModel(model, datasets, cross_entropy, optimizer, *([[], None, logger] if newer else [logger])).train(1, BATCH)
    assert len(logger.train) == BATCHES


def test_a_model_of_another_library_is_refused_with_the_reason() -> None:
    with pytest.raises(TypeError, match=r"only PyTorch models .* TensorFlow and Keras are not supported"):
        FabricModel(lambda: None, datasets, "categorical_crossentropy", "sgd")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"optimizer": "sgd"}, "optimizer is a str"),
        ({"loss_fn": "mse"}, "loss_fn is 'mse'"),
        ({"loss_fn": None}, "needs loss_fn"),
        ({"datasets_fn": None}, "needs datasets_fn"),
        ({"loss_function": cross_entropy}, "twice"),
    ],
)
def test_what_is_missing_or_wrong_is_said(options: dict[str, Any], said: str) -> None:
    model = torch.nn.Linear(4, 2)
    right = {"datasets_fn": datasets, "loss_fn": cross_entropy, "optimizer": torch.optim.SGD(model.parameters(), 0.1)}
    with pytest.raises(TypeError, match=said):
        FabricModel(model, **{**right, **options})


def test_unknown_options_are_ignored_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"FabricModel\(\) ignores surprise: there is no such option"):
        fabric = build(surprise=1)
    with pytest.warns(UserWarning, match="hardware_spec: the job's resources"):
        fabric.train(1, BATCH, hardware_spec={"nodes": 1})


@pytest.mark.parametrize(
    "hint",
    [{"worker_memory": "16G"}, {"driver_memory": "1G"}, {"worker_num": 2}, {"worker_device_num": 1}],
    ids=lambda hint: next(iter(hint)),
)
def test_hints_for_resources_change_nothing(hint: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match=rf"train\(\) ignores {next(iter(hint))}: the job's resources are set"):
        fabric = trained(1, hint)
    assert torch.equal(weights(fabric), weights(trained(1)))


@pytest.mark.parametrize("kind", [torch.optim.Adadelta, torch.optim.Adam])
def test_an_optimizer_of_some_parameters_leaves_the_others(kind: type[torch.optim.Optimizer]) -> None:
    """Train a new last layer of a trained network."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    FabricModel(model, datasets, cross_entropy, kind(model[1].parameters(), lr=0.1)).train(1, BATCH)
    after = [parameter.detach() for parameter in model.parameters()]
    assert [torch.equal(*pair) for pair in zip(before, after, strict=True)] == [True, True, False, False]


# --- fn_step_train, fn_test ---


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_step_hook_gives_the_weights_of_our_own_loop(set_to_none: bool) -> None:
    """20 samples in turns of at most 8: what a hook's zero_grad clears are its own turn's gradients only."""

    def hook(model: Any, data: Any, *rest: Any) -> Any:
        found = step_hook(model, data, *rest)
        model.get_optimizer().zero_grad(set_to_none=set_to_none)
        return (found[0], step_hook(model, data, *rest)[1])

    torch.testing.assert_close(weights(trained(fn_step_train=hook)), weights(trained()), rtol=1e-5, atol=1e-6)


def test_a_step_hook_gets_what_is_documented() -> None:
    seen: list[tuple[Any, ...]] = []

    def hook(*arguments: Any) -> Any:
        seen.append((*arguments, arguments[0].training))
        return step_hook(*arguments)

    trained(1, fn_step_train=hook)
    _, data, eva, loader, args, training = seen[0]
    assert training
    assert [tensor.shape for tensor in data] == [(7, 4), (7,)]
    assert eva(torch.eye(4), torch.tensor([0, 1, 3, 3])) == 75.0
    assert isinstance(loader, DataLoader)
    assert len(loader) == BATCHES
    assert (args["epoch"], args["step"], args["rank"], args["world_size"]) == (0, 0, 0, 1)


def test_what_a_step_hook_returns_is_recorded() -> None:
    logger = Recorder()

    def hook(*arguments: Any) -> Any:
        return 12.5, step_hook(*arguments)[1]

    trained(1, fn_step_train=hook, driver_logger=logger)
    assert [accuracy for _, accuracy, _, _ in logger.train] == [12.5] * STEPS


def test_a_step_hook_that_steps_the_optimizer_is_told_not_to() -> None:
    def hook(model: Any, *rest: Any) -> Any:
        found = step_hook(model, *rest)
        model.get_optimizer().step()
        return found

    with pytest.raises(RuntimeError, match=r"remove optimizer.step\(\)"):
        trained(fn_step_train=hook)


def test_a_step_hook_that_returns_something_else_is_told_what_to_return() -> None:
    with pytest.raises(TypeError, match=r"return \(accuracy, loss\)"):
        trained(fn_step_train=lambda *arguments: step_hook(*arguments)[1])


def test_a_test_hook_says_the_loss() -> None:
    logger = Recorder()
    seen: list[int] = []

    def hook(model: Any, test_iter: Any, fn_args: Any) -> float:
        assert not model.training
        losses = [model.get_loss_function()(model(inputs), labels).item() for inputs, labels in test_iter]
        seen.append(len(losses))
        return sum(losses) / len(losses)

    fabric = trained(1, fn_test=hook, driver_logger=logger, train={"validation_batch_size": 10})
    with torch.no_grad():
        expected = float(cross_entropy(fabric.model(dataset().tensors[0]), dataset().tensors[1]))
    [(loss, accuracy, completed, worker)] = logger.test
    assert seen == [5]
    assert loss == pytest.approx(expected)
    assert math.isnan(accuracy)
    assert (completed, worker) == (BATCHES, 0)


# --- loggers and callbacks ---


class Recorder(LoggerCallback):
    """Does not call the base's constructor, as those of WMLA's samples."""

    def __init__(self) -> None:
        self.train: list[tuple[float, float, int, int]] = []
        self.test: list[tuple[float, float, int, int]] = []
        self.ends: list[str] = []

    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        self.train.append((loss, acc, completed_batch, worker))

    def log_test_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        self.test.append((loss, acc, completed_batch, worker))

    def on_train_begin(self) -> None:
        self.ends.append("begin")

    def on_train_end(self) -> None:
        self.ends.append("end")


class NewRecorder:
    """A recorder of the newer generation, without any base."""

    def __init__(self) -> None:
        self.train: list[tuple[dict[str, float], int, int, int]] = []
        self.test: list[tuple[dict[str, float], int, int]] = []

    def log_train_metrics(self, metrics: dict[str, float], completed_batch: int, epoch: int, worker: int = 0) -> None:
        self.train.append((metrics, completed_batch, epoch, worker))

    def log_test_metrics(self, metrics: dict[str, float], completed_batch: int, epoch: int) -> None:
        self.test.append((metrics, completed_batch, epoch))


def test_the_drivers_logger_is_told_each_step() -> None:
    logger = Recorder()
    fabric = trained(2, driver_logger=logger)
    completed = [completed for _, _, completed, _ in logger.train]
    assert completed == [3, 5, BATCHES, 3, 5, BATCHES], "mini-batches of the epoch, from 20, 20 and 10 samples"
    assert logger.ends == ["begin", "end"]
    assert [entry[2:] for entry in logger.test] == [(BATCHES, 0)] * 2
    outputs, labels = fabric.model(dataset().tensors[0]).detach(), dataset().tensors[1]
    assert logger.test[-1][0] == pytest.approx(float(cross_entropy(outputs, labels)))
    assert logger.test[-1][1] == pytest.approx(100.0 * float((outputs.argmax(1) == labels).double().mean()))


def test_the_loss_is_the_unscaled_mean_and_the_accuracy_in_percent() -> None:
    logger = Recorder()
    fabric = build(driver_logger=logger)
    inputs, labels = dataset().tensors
    outputs = fabric.model(inputs).detach()
    expected = float(cross_entropy(outputs, labels)), 100.0 * float((outputs.argmax(1) == labels).double().mean())
    fabric.train(1, SAMPLES, 1)
    assert logger.train[0][:2] == pytest.approx(expected, rel=1e-5)


def test_the_newer_generation_gets_a_dict_and_the_epoch() -> None:
    logger, worker = NewRecorder(), NewRecorder()
    trained(2, driver_logger_callback=logger, worker_logger_callback=worker, metrics=[first_class])
    assert [entry[1:] for entry in logger.train[-2:]] == [(5, 1, 0), (BATCHES, 1, 0)]
    assert list(logger.train[0][0]) == ["loss", "accuracy", "first_class"]
    assert worker.train == logger.train
    assert [(list(metrics), *rest) for metrics, *rest in logger.test] == [
        (["loss", "accuracy"], BATCHES, 0),
        (["loss", "accuracy"], BATCHES, 1),
    ]


def first_class(outputs: torch.Tensor, labels: torch.Tensor) -> float:
    return float((outputs.argmax(1) == 0).float().mean())


class Watcher(Callback):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def on_train_begin(self) -> None:
        self.calls.append("train begins")

    def on_epoch_begin(self, epoch: int) -> None:
        self.calls.append(("begin", epoch))

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        self.calls.append(("end", epoch, save_model))

    def on_train_end(self) -> None:
        self.calls.append("train ends")


class Shorter(Callback):
    """A callback whose `on_epoch_end` takes the epoch alone."""

    ended: tuple[int, ...] = ()

    def on_epoch_end(self, epoch: int) -> None:  # type: ignore[override]
        self.ended = (*self.ended, epoch)


def test_callbacks_are_called_around_epochs_that_begin_with_0() -> None:
    watcher, shorter = Watcher(), Shorter()
    fabric = trained(2, user_callback=[watcher, shorter])
    assert watcher.calls == [
        "train begins",
        *(("begin", 0), ("end", 0, False), ("begin", 1), ("end", 1, False)),
        "train ends",
    ]
    assert shorter.ended == (0, 1)
    assert watcher.model is fabric.model
    assert watcher.params["optimizer"] is fabric.optimizer
    assert watcher.params["epochs"] == 2


def test_one_object_may_be_logger_and_callback() -> None:
    logger = Recorder()
    trained(1, driver_logger=logger, user_callback=[logger])
    assert logger.ends == ["begin", "end"]


class Slower(Callback):
    def on_epoch_begin(self, epoch: int) -> None:
        for group in self.params["optimizer"].param_groups:
            group["lr"] = 0.1 / (epoch + 1)


def test_a_callback_changes_the_learning_rate() -> None:
    assert trained(3, user_callback=Slower()).optimizer.param_groups[0]["lr"] == 0.1 / 3
    assert not torch.equal(weights(trained(user_callback=[Slower()])), weights(trained()))


class Broken(Callback):
    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        raise RuntimeError("mine")


def test_an_error_in_a_callback_ends_the_training() -> None:
    with pytest.raises(RuntimeError, match="mine") as caught:
        trained(user_callback=[Broken()])
    assert caught.traceback[-1].name == "on_epoch_end"


@pytest.mark.parametrize(("answer", "warns"), [(2, False), (0, True), ("many", True)])
def test_scaleup_function_is_asked_in_each_epoch(answer: Any, warns: bool) -> None:
    asked: list[tuple[int, int]] = []

    def scaleup(epoch: int, most: int) -> Any:
        asked.append((epoch, most))
        return answer

    with pytest.warns(UserWarning, match="scaleup_function returned") if warns else nullcontext():
        fabric = trained(2, scaleup_function=scaleup)
    assert asked == [(0, 3), (1, 3)]
    assert torch.equal(weights(fabric), weights(trained()))


def test_the_samples_own_loggers_are_here_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting calls, accuracies in 0..1, and training under WMLA's name for tests."""
    monkeypatch.setenv("LOG_DIR", str(tmp_path))
    trained(2, driver_logger=EDTLoggerCallback(), user_callback=[EDTTrainCallback("model.pth")])
    lines = (tmp_path / "stdout").read_text().splitlines()
    train = [line for line in lines if "] Train,\t" in line]
    assert [re.findall(r"Global steps: (\d+),\tIteration: (\d+)", line) for line in train] == [
        [(str(call), str(batch))] for call, batch in enumerate([3, 5, BATCHES] * 2, 1)
    ]
    assert all(0 <= float(line.split("Accuracy: ")[1]) <= 1 for line in lines if "Accuracy: " in line)
    assert sum("] Test,\t" in line for line in lines) == 2
    assert any(line.endswith("] Epoch 2 of 2 is over.") for line in lines)
    entries = [json.loads(line) for line in (tmp_path / "evaluation-metrics.txt").read_text().splitlines()]
    assert [(entry["grouplabel"], set(entry["values"])) for entry in entries] == [("test", {"loss", "accuracy"})] * 6


# --- train(), download(), ONNX ---


def test_validation_is_due_by_epochs() -> None:
    logger = Recorder()
    trained(5, driver_logger=logger, train={"validation_freq": 2})
    assert len(logger.test) == 2
    trained(2, driver_logger=logger, train={"validation_freq": 0})
    assert len(logger.test) == 2


def test_batches_are_made_by_the_scripts_function() -> None:
    def collate(samples: list[Any]) -> list[torch.Tensor]:
        return [torch.stack([inputs for inputs, _ in samples]), torch.tensor([1 - int(label) for _, label in samples])]

    assert not torch.equal(weights(trained(fn_batch_collate=collate)), weights(trained()))


def test_threads_of_the_loader_change_nothing() -> None:
    assert torch.equal(weights(trained(1, {"num_dataloader_threads": 1})), weights(trained(1)))


def test_download_makes_a_zip_of_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RESULT_DIR", str(tmp_path / "results"))
    saved = trained(1).download(str(tmp_path / "out"))
    assert saved == tmp_path / "out" / "model.zip"
    assert f"Save model:  {saved}\n" in capsys.readouterr().out
    assert zipfile.ZipFile(saved).namelist() == ["model_epoch_final.pth", "model_epoch_final_optimizer_state.pth"]


def test_download_before_train_is_refused() -> None:
    with pytest.raises(RuntimeError, match="call train"):
        build().download()


def test_onnx_without_its_packages_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first step, and with what helps on a cluster, whose environment belongs to others."""
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    fabric = build(enable_onnx=True)
    said = "onnx and onnxscript cannot be imported. Add them to a requirements.txt beside the script"
    begun: list[str] = []
    monkeypatch.setattr(fabric, "_train_epoch", lambda *arguments: begun.append("epoch"))
    monkeypatch.setattr(export.warnings, "warn", lambda text, **options: begun.append(text))
    fabric.train(1, BATCH)
    [warning, epoch] = begun
    assert said in warning
    assert epoch == "epoch"


@pytest.mark.parametrize("has_gpu", [False, True])
def test_callbacks_are_told_in_the_end_that_they_can_export(monkeypatch: pytest.MonkeyPatch, has_gpu: bool) -> None:
    """WMLA's samples make an input on the GPU for it."""
    watcher, told = Watcher(), []
    fabric = build(user_callback=watcher, enable_onnx=True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(export, "write_onnx", lambda model, sample, file: told.append(sample().shape))
    fabric.train(2, BATCH)
    assert [call for call in watcher.calls if call[0] == "end"] == [("end", 0, False), ("end", 1, has_gpu)]
    assert told == [(2, 4)]


def test_driver_says_where_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    trained(2)
    said = capsys.readouterr().out
    assert "Using pytorch backend.\n" in said
    assert f"Total iterations: {2 * BATCHES}\n" in said
    assert "--------START TRAINING--------\n" in said
    assert f"--------END TRAINING: completed {2 * BATCHES} iterations in " in said
