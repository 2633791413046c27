"""IBM WMLA's `pth_parameter_mgr`: what was chosen in the model's form, for scripts that ask for it.

    import pth_parameter_mgr
    optimizer = pth_parameter_mgr.getOptimizer(model)
    FabricModel(model, datasets, loss, optimizer).train(
        pth_parameter_mgr.getEpoch(), pth_parameter_mgr.getTrainBatchSize())

WMLA writes such a module into the parent of `--train_dir`; a script that puts that folder on its path finds this one
all the same. Its names are IBM's. What was left empty in the form, and a run off the cluster, gets `DEFAULTS`.
"""

import inspect
from pathlib import Path
from typing import Any

import torch
from _wmla.schedules import Schedule, keep, schedule_of
from tidepool.env import data_folder, rank_context
from torch.optim import lr_scheduler

__all__ = [
    "DEFAULTS",
    "getEpoch",
    "getLearningRate",
    "getOptimizer",
    "getTestBatchSize",
    "getTestData",
    "getTrainBatchSize",
    "getTrainData",
    "getValData",
    "schedule_of",
]

DEFAULTS = {"optimizer": "SGD", "learning_rate": 0.01, "lr_policy": "fixed", "epochs": 10, "batch_size": 64}

#: Names that a dataset's folders may have; without one of them its parts are not told apart.
_FOLDERS = {
    "training": ("train", "training", "train_db", "train_data"),
    "validation": ("val", "valid", "validation", "val_db", "validation_db", "dev"),
    "testing": ("test", "testing", "test_db", "test_data"),
}


def getTrainData(is_list: bool = True) -> str | list[str]:
    """Return the folder for training; with `is_list` the files in it, sorted."""
    return _data("training", is_list)


def getValData(is_list: bool = True) -> str | list[str]:
    return _data("validation", is_list)


def getTestData(is_list: bool = True) -> str | list[str]:
    return _data("testing", is_list)


def getEpoch() -> int:
    return int(_chosen("epochs"))


def getTrainBatchSize() -> int:
    return int(_chosen("batch_size"))


def getTestBatchSize() -> int:
    """The form has one batch size, for both."""
    return int(_chosen("batch_size"))


def getOptimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of the form on the model's parameters, with its learning rate, momentum and weight decay."""
    name = _chosen("optimizer")
    kind = getattr(torch.optim, name)
    known = inspect.signature(kind).parameters
    options = {"lr": float(_chosen("learning_rate"))}
    for setting in ("momentum", "weight_decay"):
        value = _settings().get(setting)
        if value is None:
            continue
        if setting not in known:
            words = setting.replace("_", " ")
            raise ValueError(f"{name} has no {words}: leave it empty in the model's form, or choose SGD.")
        options[setting] = float(value)
    optimizer: torch.optim.Optimizer = kind(model.parameters(), **options)
    getLearningRate(optimizer)
    return optimizer


def getLearningRate(optimizer: torch.optim.Optimizer) -> Schedule | None:
    """Return a schedule to step after each epoch, by the form's learning rate policy; None where the rate is fixed.

    `FabricModel` steps it by itself.
    """
    schedule = schedule_of(optimizer)
    policy = _chosen("lr_policy")
    if schedule is None and policy != "fixed":
        schedule = keep(optimizer, _schedule(policy, optimizer))
    return schedule


def _settings() -> dict[str, Any]:
    context = rank_context()
    return context.launch.settings if context else {}


def _chosen(setting: str) -> Any:
    return _settings().get(setting, DEFAULTS[setting])


def _data(part: str, is_list: bool) -> str | list[str]:
    root = data_folder()
    names = {entry.name.lower(): entry for entry in root.iterdir() if entry.is_dir()} if root.is_dir() else {}
    folder = next((names[name] for name in _FOLDERS[part] if name in names), root)
    return sorted(str(file) for file in _files(folder)) if is_list else str(folder)


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()] if folder.is_dir() else [folder]


def _schedule(policy: str, optimizer: torch.optim.Optimizer) -> Schedule:
    settings = _settings()
    gamma = float(settings.get("gamma", 0.95 if policy == "exponential" else 0.1))
    match policy:
        case "step":
            return lr_scheduler.StepLR(optimizer, int(settings.get("step_size", 10)), gamma)
        case "multistep":
            if "step_values" not in settings:
                raise ValueError("The learning rate policy multistep needs step values: give them in the model's form.")
            milestones = [int(epoch) for epoch in str(settings["step_values"]).split(",")]
            return lr_scheduler.MultiStepLR(optimizer, milestones, gamma)
        case "exponential":
            return lr_scheduler.ExponentialLR(optimizer, gamma)
        case "cosineannealing":
            return lr_scheduler.CosineAnnealingLR(optimizer, int(settings.get("t_max", getEpoch())))
        case "reducelronplateau":
            return lr_scheduler.ReduceLROnPlateau(optimizer, factor=gamma)
    raise ValueError(f"There is no learning rate policy {policy}.")
