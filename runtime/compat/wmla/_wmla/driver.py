"""WMLA's driver, on whichever rank is the first: it calls loggers and callbacks, and leaves the results.

All ranks call these methods at the same places. Callbacks run on rank 0 alone; what they change in the optimizer's
parameter groups then holds on all ranks.
"""

import inspect
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tidepool.env import data_folder, log_folder, logging_into
from tidepool.protocol import StepRecord
from tidepool.torch import Session
from tidepool.wmla_environment import driver_folder

from _wmla.ledger import Entry, Ledger, bring_files, records_after
from _wmla.options import Parts

__all__ = ["Driver", "Hyperparameters", "Plan", "Progress", "takes"]

RESULTS = "val_dict_list.json"
#: Fields of a step's record that are not metrics of the script.
_BOOKKEEPING = {*StepRecord.__struct_fields__, "samples_per_second", "learning_rate"}
#: Parameters by which a logger of the newer generation is known.
_NEWER = {"metrics", "epoch"}


@dataclass(frozen=True)
class Plan:
    epochs: int
    #: Samples of a mini-batch, which is what one GPU computes at once, and of an epoch.
    batch_size: int
    samples: int
    #: The most GPUs.
    engines: int
    #: Number of epochs between checkpoints; 0: none are written.
    checkpoint_freq: int
    #: Whether callbacks are told in the end that they can export the model.
    exports: bool

    @property
    def batches(self) -> int:
        """Mini-batches of an epoch."""
        return -(-self.samples // self.batch_size)


@dataclass
class Progress:
    """The driver's part of the training's state."""

    #: The last epoch whose beginning all ranks have been through.
    begun: int = -1
    #: Ranks that compute in that epoch; None: all.
    most_ranks: int | None = None
    #: Results of the validations: `steps`, and the metrics by name.
    results: list[dict[str, Any]] = field(default_factory=list)
    #: The driver's newest entry: in a checkpoint, that of the rank which wrote it.
    ledger: str = ""

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)


class Driver:
    def __init__(self, session: Session, parts: Parts, plan: Plan, progress: Progress) -> None:
        self._session, self._parts, self._plan, self._progress = session, parts, plan, progress
        self._hyperparameters = Hyperparameters(parts.optimizer)
        owners = [parts.driver_logger, *parts.callbacks]
        #: Each once, though one object may be logger and callback.
        self._on_driver = list({id(owner): owner for owner in owners if owner is not None}.values())
        self._folder: Path | None = None
        self._ledger: Ledger | None = None
        if session.context is not None:
            self._folder = driver_folder(session.context)
            self._ledger = Ledger(session.context.folder, self._folder, self._on_driver)
        self._on_duty = self._introduced = False
        self._began_at = time.time()
        #: The last step that the driver's logger has been told of, and the worker's; None: from here on.
        self._logged = 0
        self._worker_logged: int | None = None
        #: Records of an earlier attempt, which the driver's logger has not been told of.
        self._earlier: list[dict[str, Any]] = []

    # --- calls that every rank makes ---

    def begin_epoch(self, epoch: int) -> None:
        self.follow()
        if self._progress.begun < epoch:
            if self._parts.callbacks or self._parts.scaleup_function:
                self._progress.most_ranks = self._agree(lambda: self._run_epoch_begin(epoch)) or None
            self._progress.begun = epoch
        self._session.share_among(self._progress.most_ranks)

    def follow(self) -> None:
        """Tell the loggers what they have not been told, after a step and before the first one."""
        self._tell_worker()
        if self._session.rank != 0:
            self._on_duty = False
            return
        self._tell_what_is_new()
        if self._ledger is not None and self._ledger.is_due:
            self._write_ledger(self._ledger)

    def end_epoch(self, epoch: int, results: dict[str, float]) -> None:
        """End an epoch. results: of the validation, `loss` and perhaps `accuracy`; empty where none was due."""
        self.follow()
        if results:
            self._progress.results = [*self._progress.results, {"steps": self._session.position.step, **results}]
        self._agree(lambda: self._run_epoch_end(epoch, results))

    def end(self) -> None:
        call(self._parts.worker_logger, "on_train_end")
        if self._on_duty:
            iterations = self._plan.epochs * self._plan.batches
            seconds = time.time() - self._began_at
            _say(f"--------END TRAINING: completed {iterations} iterations in {seconds:.3f} seconds.--------")

    # --- callbacks, on rank 0 ---

    def _agree(self, run: Callable[[], int]) -> int:
        """Run it on rank 0. Its result, and the optimizer's hyperparameters as it left them, hold on all ranks."""

        def values() -> list[float]:
            self._tell_what_is_new()
            with self._logging():
                result = run()
            return [float(result), *self._hyperparameters.read()]

        result, *numbers = self._session.from_first(values, width=1 + self._hyperparameters.count)
        self._hyperparameters.write(numbers)
        if self._session.rank == 0 and self._on_duty and self._ledger is not None:
            self._write_ledger(self._ledger)
        return round(result)

    def _run_epoch_begin(self, epoch: int) -> int:
        for callback in self._parts.callbacks:
            call(callback, "on_epoch_begin", epoch)
        if self._parts.scaleup_function is None:
            return 0
        wanted = self._parts.scaleup_function(epoch, self._plan.engines)
        if not isinstance(wanted, int) or wanted < 1:
            warnings.warn(f"scaleup_function returned {wanted!r}, which is ignored: return 1 or more", stacklevel=2)
            return 0
        return int(wanted)

    def _run_epoch_end(self, epoch: int, results: dict[str, float]) -> int:
        is_last = epoch + 1 == self._plan.epochs
        if results:
            found = {"loss": math.nan, **results}
            log(self._parts.driver_logger, "log_test_metrics", found, self._plan.batches, epoch)
        if self._plan.checkpoint_freq and (epoch + 1) % self._plan.checkpoint_freq == 0:
            self._session.save_weights(f"model_epoch_{epoch + 1}")
        for callback in self._parts.callbacks:
            call(callback, "on_epoch_end", epoch, is_last and self._plan.exports)
        if is_last:
            self._write_results()
            for owner in self._on_driver:
                call(owner, "on_train_end")
        return 0

    def _write_results(self) -> None:
        """Write what a tuner of hyperparameters reads, unless the script has."""
        folder = self._session.folder
        if folder is not None and not (folder / RESULTS).exists():
            (folder / RESULTS).write_text(json.dumps(self._progress.results))

    # --- loggers ---

    def _tell_what_is_new(self) -> None:
        self._take_over()
        if self._parts.driver_logger is not None:
            with self._logging():
                for record in self._unlogged():
                    self._tell_driver(record)
        self._logged = self._session.position.step

    def _tell_driver(self, record: dict[str, Any]) -> None:
        """Log once for each worker, with the step's means: how each of them fared is summed away."""
        for worker in range(record["world_size"]):
            self._log_step(self._parts.driver_logger, record, worker)

    def _tell_worker(self) -> None:
        if self._parts.worker_logger is None:
            return
        if self._worker_logged is None:
            call(self._parts.worker_logger, "on_train_begin")
            self._worker_logged = self._session.position.step
        rank = self._session.rank
        for record in self._session.position.records:
            if record["step"] > self._worker_logged and rank < record["world_size"]:
                self._log_step(self._parts.worker_logger, record, rank)
        self._worker_logged = self._session.position.step

    def _log_step(self, logger: Any, record: dict[str, Any], worker: int) -> None:
        """Log with the epoch's mini-batches that all workers have done once this one has told of its part."""
        size = self._plan.batch_size
        before = -(-(record["cursor"] - record["samples"]) // size)
        done = -(-record["cursor"] // size)
        completed = int(before + -(-(done - before) * (worker + 1) // record["world_size"]))
        log(logger, "log_train_metrics", _metrics(record), completed, record["epoch"], worker)

    def _unlogged(self) -> list[dict[str, Any]]:
        """Records that the driver's logger has not been told of, whatever rank was the driver then."""
        position = self._session.position
        records = [record for record in position.records if record["step"] > self._logged]
        if len(records) < position.step - self._logged:
            found = self._earlier
            if self._session.folder is not None:
                found = found + records_after(self._session.folder / "metrics.jsonl", self._logged)
            by_step = {record["step"]: record for record in [*found, *records] if record["step"] > self._logged}
            records = [by_step[step] for step in sorted(by_step)]
        self._earlier = []
        return records

    # --- choice of the driver ---

    def _take_over(self) -> None:
        if self._on_duty:
            return
        self._on_duty = True
        self._say_environment()
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        if not self._introduced:
            self._introduced = True
            with self._logging():
                for owner in self._on_driver:
                    call(owner, "on_train_begin")
        self._logged = self._session.position.step
        if self._ledger is None:
            return
        entry = self._ledger.read() or self._inherited()
        if entry is not None:
            self._ledger.restore(entry)
            self._logged, self._began_at = entry.step, entry.began_at
        self._write_ledger(self._ledger)

    def _inherited(self) -> Entry | None:
        """Return the entry of the checkpoint which the training continues from."""
        context = self._session.context
        if not self._progress.ledger or context is None or self._folder is None:
            return None
        entry = Entry(**json.loads(self._progress.ledger))
        source = Path(entry.folder)
        if source.parent == context.folder.parent:
            bring_files(entry, driver_folder(context, source), self._folder)
            step = self._session.position.step
            records = records_after(source / "metrics.jsonl", entry.step)
            self._earlier = [record for record in records if record["step"] <= step]
        else:  # another job's, which has its own log
            entry.files, entry.step, entry.began_at = {}, self._session.position.step, time.time()
        return entry

    def _write_ledger(self, ledger: Ledger) -> None:
        ledger.write(self._logged, self._began_at)
        self._progress.ledger = ledger.text

    def _logging(self) -> AbstractContextManager[None]:
        """Return a context in which LOG_DIR is the driver's, not the rank's."""
        return nullcontext() if self._folder is None else logging_into(self._folder)

    def _say_environment(self) -> None:
        _say("Using pytorch backend.")
        if (results := self._session.folder) is not None:
            folders = {
                "DATA_DIR": data_folder(),
                "RESULT_DIR": results,
                "LOG_DIR": log_folder(),
                "SAVED_MODEL_DIR": results / "model",
            }
            for name, folder in folders.items():
                _say(f"Exposed the environment variable {name} to: {folder}")
        _say(f"Total iterations: {self._plan.epochs * self._plan.batches}")
        _say("--------START TRAINING--------")


def _metrics(record: dict[str, Any]) -> dict[str, float]:
    """Loss and accuracy first; NaN for what was not finite."""
    names = [name for name in record if name not in _BOOKKEEPING and not name.startswith(("learning_rate/", "test_"))]
    ordered = sorted(names, key=lambda name: (name != "loss", name != "accuracy"))
    return {name: math.nan if record[name] is None else record[name] for name in ordered}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


# --- calls of what a script brings: WMLA's generations give their callbacks different arguments ---


def call(owner: Any, method: str, *arguments: Any) -> None:
    """Call a method with as many of the arguments as it takes; do nothing where there is no such method."""
    function = getattr(owner, method, None)
    if callable(function):
        function(*arguments[: _most(function)])


def log(logger: Any, method: str, metrics: Mapping[str, float], completed: int, epoch: int, worker: int = 0) -> None:
    """Log a step or test. metrics: `loss`, a mean; `accuracy` in percent, if there is one; those of the script."""
    function = getattr(logger, method, None)
    if not callable(function):
        return
    rest = {"completed_batch": completed, "epoch": epoch, "worker": worker}
    given: dict[str, Any] = {"metrics": dict(metrics), **rest}
    parameters = inspect.signature(function).parameters
    if not _NEWER & set(parameters):
        del rest["epoch"]
        given = {"loss": metrics["loss"], "acc": metrics.get("accuracy", math.nan), **rest}
    kinds = {parameter.kind for parameter in parameters.values()}
    if set(parameters) <= set(given):
        function(**{name: given[name] for name in parameters})
    elif inspect.Parameter.VAR_KEYWORD in kinds:
        function(**given)
    else:
        call(logger, method, *given.values())


def takes(owner: Any, method: str, parameter: str) -> bool:
    """Return whether the owner has such a method with a parameter of this name."""
    function = getattr(owner, method, None)
    return callable(function) and parameter in inspect.signature(function).parameters


def _most(function: Callable[..., Any]) -> int | None:
    """Return the number of positional arguments that a function takes; None: any number."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return sum(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters
    )


# --- changes of the optimizer by callbacks ----


class Hyperparameters:
    """Hyperparameters of an optimizer when this is made: numbers, and tuples of numbers, of each parameter group."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        #: The optimizer replaces its parameter groups when it receives state, so they are found by number.
        self._optimizer = optimizer
        self._places = [(number, key) for number, group in enumerate(optimizer.param_groups) for key in _numeric(group)]
        self.count = len(self.read())

    def read(self) -> list[float]:
        groups = self._optimizer.param_groups
        return [float(value) for number, key in self._places for value in _values(groups[number][key])]

    def write(self, numbers: Sequence[float]) -> None:
        """Set the numbers; what is the same already stays as it is, its type too."""
        rest = iter(numbers)
        for number, key in self._places:
            group = self._optimizer.param_groups[number]
            before = _values(group[key])
            after = [next(rest) for _ in before]
            if after == [float(value) for value in before]:
                continue
            if isinstance(group[key], torch.Tensor):
                group[key].fill_(after[0])
            else:
                group[key] = tuple(after) if isinstance(group[key], tuple) else after[0]


def _numeric(group: dict[str, Any]) -> Iterator[str]:
    for key in sorted(group):
        if key != "params" and all(_is_number(value) for value in _values(group[key])):
            yield key


def _values(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple) else (value,)


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return isinstance(value, int | float) and not isinstance(value, bool)
