"""Arguments of scripts: the spellings of WMLA's generations as one, and the datasets that `datasets_fn` returns."""

import fcntl
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tidepool.env import rank_context

__all__ = ["Parts", "datasets_of", "parts_of", "warn_of_unknown"]

#: A later name of an argument -> the one here.
_SPELLINGS = {
    "datasets_function": "datasets_fn",
    "loss_function": "loss_fn",
    "driver_logger_callback": "driver_logger",
    "worker_logger_callback": "worker_logger",
    "save_to_onnx": "enable_onnx",
}
#: The fifth to eighth argument by position, in the newer generation.
_NEWER_ORDER = ("metrics", "worker_logger", "driver_logger", "enable_onnx")
_OLDER_ORDER = ("driver_logger", "worker_logger", "user_callback", "enable_onnx")
#: Options that are decided elsewhere: a job's resources are given when it is submitted.
HINTS = frozenset({"worker_memory", "driver_memory", "worker_num", "worker_device_num", "hardware_spec"})
#: Options of Keras.
_OTHER_BACKENDS = frozenset({"keras_custom_objects"})


@dataclass
class Parts:
    """The arguments of a FabricModel."""

    datasets_fn: Callable[[], Any]
    optimizer: torch.optim.Optimizer
    loss_fn: Callable[[Any, Any], torch.Tensor] | None = None
    driver_logger: Any = None
    worker_logger: Any = None
    user_callback: Any = None
    enable_onnx: bool = False
    fn_step_train: Callable[..., Any] | None = None
    fn_test: Callable[..., Any] | None = None
    scaleup_function: Callable[[int, int], Any] | None = None
    metrics: Any = None
    fn_batch_collate: Callable[[list[Any]], Any] | None = None

    @property
    def callbacks(self) -> list[Any]:
        given = self.user_callback
        return [] if given is None else list(given) if isinstance(given, list | tuple) else [given]


def parts_of(model: Any, given: Mapping[str, Any]) -> Parts:
    """Read the arguments. given: by name, in whatever spelling. Raises TypeError for what cannot be trained."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"FabricModel got a {type(model).__module__}.{type(model).__name__}: only PyTorch models "
            "(torch.nn.Module) are trained here. TensorFlow and Keras are not supported."
        )
    values = _in_older_order({name: value for name, value in given.items() if value is not None})
    known = {}
    for name, value in values.items():
        if _SPELLINGS.get(name, name) in known:
            raise TypeError(f"FabricModel got {name!r} twice, in two spellings")
        known[_SPELLINGS.get(name, name)] = value
    unknown = known.keys() - Parts.__dataclass_fields__.keys()
    warn_of_unknown(sorted(unknown), "FabricModel()")
    parts = {name: value for name, value in known.items() if name not in unknown}
    for name in ("datasets_fn", "optimizer"):
        if name not in parts:
            raise TypeError(f"FabricModel needs {name}: FabricModel(model, datasets_fn, loss_fn, optimizer)")
    if not isinstance(parts["optimizer"], torch.optim.Optimizer):
        raise TypeError(f"optimizer is a {type(parts['optimizer']).__name__}: give a torch.optim.Optimizer")
    if "loss_fn" not in parts and "fn_step_train" not in parts:
        raise TypeError("FabricModel needs loss_fn, a function of (outputs, labels), or fn_step_train")
    if "loss_fn" in parts and not callable(parts["loss_fn"]):
        raise TypeError(f"loss_fn is {parts['loss_fn']!r}: give a function of (outputs, labels), as F.cross_entropy")
    return Parts(**parts)


def warn_of_unknown(names: list[str], where: str) -> None:
    for name in names:
        if name in HINTS:
            why = "the job's resources are set when it is submitted"
        elif name in _OTHER_BACKENDS:
            why = "it is for Keras"
        else:
            why = "there is no such option"
        warnings.warn(f"{where} ignores {name}: {why}", stacklevel=4)


def _in_older_order(given: dict[str, Any]) -> dict[str, Any]:
    """Rename arguments given by position: the newer generation has metrics where the older has a driver's logger, and
    the driver's logger where the older has callbacks."""
    fifth, seventh = given.get("driver_logger"), given.get("user_callback")
    is_newer = not _is_logger(fifth) if fifth is not None else _is_logger(seventh) and not _is_callback(seventh)
    if not is_newer:
        return given
    moved = {name: given[name] for name in _OLDER_ORDER if name in given}
    rest = {name: value for name, value in given.items() if name not in moved}
    return {**rest, **{_NEWER_ORDER[_OLDER_ORDER.index(name)]: value for name, value in moved.items()}}


def _is_logger(given: Any) -> bool:
    return hasattr(given, "log_train_metrics") or hasattr(given, "log_test_metrics")


def _is_callback(given: Any) -> bool:
    return hasattr(given, "on_epoch_begin") or hasattr(given, "on_epoch_end")


def datasets_of(datasets_fn: Callable[[], Any]) -> tuple[Any, Any]:
    """(training, held-out); the latter None where the function returns only one."""
    with _alone_on_this_host():
        found = datasets_fn()
    if isinstance(found, tuple | list) and len(found) == 2:
        training, held_out = found
        if any(isinstance(part, tuple) and part and all(hasattr(array, "shape") for array in part) for part in found):
            raise TypeError(
                "datasets_fn returned arrays, as for Keras: return two datasets of PyTorch, such as "
                "TensorDataset(inputs, labels)"
            )
        return training, held_out
    if isinstance(found, tuple | list):
        raise TypeError(f"datasets_fn returned {len(found)} things: return (training dataset, test dataset)")
    return found, None


@contextmanager
def _alone_on_this_host() -> Iterator[None]:
    """Keep others waiting during the first call of the job on a host; what is there then may be read by all at once."""
    context = rank_context()
    if context is None:
        yield
        return
    done = Path(context.folder, f".datasets.{context.host}.done")
    with Path(context.folder, f".datasets.{context.host}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if done.exists():
            fcntl.flock(file, fcntl.LOCK_SH)
        yield
        done.touch()
