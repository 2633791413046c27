"""WMLA's driver, on whichever rank is the first: it calls loggers and callbacks, and leaves the results.

All ranks call these methods at the same places. Callbacks run on rank 0 alone; what they change in the optimizer's
parameter groups then holds on all ranks.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidepool.env import data_folder, log_folder, logging_into
from tidepool.protocol import StepRecord
from tidepool.torch import Session
from tidepool.wmla import driver_folder

from _wmla.calling import call, log_test, log_train
from _wmla.hyperparameters import Hyperparameters
from _wmla.ledger import Entry, Ledger, bring_files, records_after

__all__ = ["Driver", "Plan", "Progress", "Roles"]

RESULTS = "val_dict_list.json"
#: Of a step's record, no metrics of the script.
_BOOKKEEPING = {*StepRecord.__struct_fields__, "samples_per_second", "learning_rate"}


@dataclass(frozen=True)
class Roles:
    """The loggers and callbacks of the script."""

    driver_logger: Any = None
    worker_logger: Any = None
    callbacks: list[Any] = field(default_factory=list)
    #: (epoch, most GPUs) -> how many shall compute in that epoch.
    scaleup: Callable[[int, int], Any] | None = None

    @property
    def on_driver(self) -> list[Any]:
        """Each once, though one object may be logger and callback."""
        owners = [self.driver_logger, *self.callbacks]
        return list({id(owner): owner for owner in owners if owner is not None}.values())


@dataclass(frozen=True)
class Plan:
    epochs: int
    #: Samples of a mini-batch, which is what one GPU computes at once, and of an epoch.
    batch_size: int
    samples: int
    #: The most GPUs.
    engines: int
    #: In epochs; 0: never.
    checkpoint_freq: int
    #: Whether callbacks are told in the end that they can export the model.
    exports: bool

    @property
    def batches(self) -> int:
        """Of an epoch."""
        return -(-self.samples // self.batch_size)


@dataclass
class Progress:
    """The part of it that belongs to the training's state."""

    #: The last epoch whose beginning all ranks have been through.
    begun: int = -1
    #: Ranks that compute in that epoch; None: all.
    most_ranks: int | None = None
    #: What each validation found: `steps`, and the metrics by name.
    results: list[dict[str, Any]] = field(default_factory=list)
    #: The driver's newest entry: in a checkpoint, that of the rank which wrote it.
    ledger: str = ""

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)


class Driver:
    def __init__(self, session: Session, roles: Roles, plan: Plan, progress: Progress) -> None:
        self._session, self._roles, self._plan, self._progress = session, roles, plan, progress
        self._hyperparameters = Hyperparameters(next(iter(session.optimizers.values())))
        self._folder: Path | None = None
        self._ledger: Ledger | None = None
        if session.context is not None and session.folder is not None:
            self._folder = driver_folder(session.context)
            self._ledger = Ledger(session.folder, self._folder, roles.on_driver)
        self._on_duty = self._introduced = False
        self._began_at = time.time()
        #: The last step that the driver's logger has been told of, and the worker's; None: from here on.
        self._logged = 0
        self._worker_logged: int | None = None
        #: Records of an earlier attempt, which the driver's logger has not been told of.
        self._earlier: list[dict[str, Any]] = []

    # --- what every rank calls ---

    def begin_epoch(self, epoch: int) -> None:
        self.follow()
        if self._progress.begun < epoch:
            if self._roles.callbacks or self._roles.scaleup:
                self._progress.most_ranks = self._agree(lambda: self._run_epoch_begin(epoch)) or None
            self._progress.begun = epoch
        self._session.share_among(self._progress.most_ranks)

    def follow(self) -> None:
        """After a step, and before the first one: tell the loggers what they have not been told."""
        self._tell_worker()
        if self._session.rank != 0:
            self._on_duty = False
            return
        self._tell_what_is_new()
        if self._ledger is not None and self._ledger.is_due:
            self._write_ledger(self._ledger)

    def end_epoch(self, epoch: int, results: dict[str, float]) -> None:
        """results: of the validation, `loss` and perhaps `accuracy`; empty where none was due."""
        self.follow()
        if results:
            self._progress.results = [*self._progress.results, {"steps": self._session.position.step, **results}]
        self._agree(lambda: self._run_epoch_end(epoch, results))

    def end(self) -> None:
        call(self._roles.worker_logger, "on_train_end")
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
        for callback in self._roles.callbacks:
            call(callback, "on_epoch_begin", epoch)
        if self._roles.scaleup is None:
            return 0
        wanted = self._roles.scaleup(epoch, self._plan.engines)
        if not isinstance(wanted, int) or wanted < 1:
            warnings.warn(f"scaleup_function returned {wanted!r}, which is ignored: return 1 or more", stacklevel=2)
            return 0
        return int(wanted)

    def _run_epoch_end(self, epoch: int, results: dict[str, float]) -> int:
        is_last = epoch + 1 == self._plan.epochs
        if results:
            log_test(self._roles.driver_logger, {"loss": math.nan, **results}, self._plan.batches, epoch)
        if self._plan.checkpoint_freq and (epoch + 1) % self._plan.checkpoint_freq == 0:
            self._session.save_weights(f"model_epoch_{epoch + 1}")
        for callback in self._roles.callbacks:
            call(callback, "on_epoch_end", epoch, is_last and self._plan.exports)
        if is_last:
            self._write_results()
            for owner in self._roles.on_driver:
                call(owner, "on_train_end")
        return 0

    def _write_results(self) -> None:
        """Unless the script has: a tuner of hyperparameters reads it."""
        if self._session.folder is not None and not (self._session.folder / RESULTS).exists():
            (self._session.folder / RESULTS).write_text(json.dumps(self._progress.results))

    # --- loggers ---

    def _tell_what_is_new(self) -> None:
        self._take_over()
        if self._roles.driver_logger is not None:
            with self._logging():
                for record in self._unlogged():
                    self._tell_driver(record)
        self._logged = self._session.position.step

    def _tell_driver(self, record: dict[str, Any]) -> None:
        """Once for each worker, with the step's means: how each of them fared is summed away."""
        for worker in range(record["world_size"]):
            log_train(
                self._roles.driver_logger, _metrics(record), self._completed(record, worker), record["epoch"], worker
            )

    def _tell_worker(self) -> None:
        if self._roles.worker_logger is None:
            return
        if self._worker_logged is None:
            call(self._roles.worker_logger, "on_train_begin")
            self._worker_logged = self._session.position.step
        rank = self._session.rank
        for record in self._session.position.records:
            if record["step"] > self._worker_logged and rank < record["world_size"]:
                completed = self._completed(record, rank)
                log_train(self._roles.worker_logger, _metrics(record), completed, record["epoch"], rank)
        self._worker_logged = self._session.position.step

    def _completed(self, record: dict[str, Any], worker: int) -> int:
        """Mini-batches of the epoch that are done, over all workers, once this one has told of its part of the step."""
        size = self._plan.batch_size
        before = -(-(record["cursor"] - record["samples"]) // size)
        done = -(-record["cursor"] // size)
        return int(before + -(-(done - before) * (worker + 1) // record["world_size"]))

    def _unlogged(self) -> list[dict[str, Any]]:
        """Records that the driver's logger has not been told of, of whatever rank was the driver then."""
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

    # --- who is the driver ---

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
                for owner in self._roles.on_driver:
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
        """That of the checkpoint which the training continues from."""
        context, folder = self._session.context, self._session.folder
        if not self._progress.ledger or context is None or folder is None or self._folder is None:
            return None
        entry = Entry(**json.loads(self._progress.ledger))
        source = Path(entry.folder)
        if source.parent == folder.parent:
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
        """LOG_DIR is the driver's, not the rank's."""
        return nullcontext() if self._folder is None else logging_into(self._folder)

    def _say_environment(self) -> None:
        _say("Using pytorch backend.")
        if self._session.context is not None and self._session.folder is not None:
            folders = {
                "DATA_DIR": data_folder(),
                "RESULT_DIR": self._session.folder,
                "LOG_DIR": log_folder(),
                "SAVED_MODEL_DIR": self._session.folder / "model",
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
