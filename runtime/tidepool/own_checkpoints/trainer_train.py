"""Transformers' Trainer, and what derives from it: `train()` continues, as with `resume_from_checkpoint`."""

import functools
import inspect
import sys
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from tidepool.own_checkpoints.hooked_rank import HookedRank

__all__ = ["LIBRARY", "hook"]

LIBRARY = "transformers"
_RESUME = "resume_from_checkpoint"
#: The file of a checkpoint that the Trainer writes last.
_STATE = "trainer_state.json"


def hook(module: str, here: HookedRank) -> None:
    library: Any = sys.modules[module]
    trainer_class = library.Trainer
    numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
    train, save = trainer_class.train, trainer_class._save_checkpoint
    signature = inspect.signature(train)
    reporter_class = _reporter_class(library.TrainerCallback)

    @functools.wraps(train)
    def continued(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs)
        if given.arguments.get("trial") is not None:  # a search trains with other parameters each time
            return train(self, *args, **kwargs)
        training = numbers[self] = here.begin_training(LIBRARY)
        newest = here.newest(LIBRARY, training)
        # False: the script says that it does not continue.
        if newest is not None and given.arguments.get(_RESUME) is None:
            given.arguments[_RESUME] = str(newest.path)
            here.tell(newest, f"{_RESUME}={str(newest.path)!r}")
        reporter = reporter_class(here)
        self.add_callback(reporter)
        try:
            return train(*given.args, **given.kwargs)
        finally:
            self.remove_callback(reporter)

    @functools.wraps(save)
    def recorded(self: Any, model: Any, trial: Any, *args: Any, **kwargs: Any) -> Any:
        # Weights alone continue nothing.
        if trial is not None or self not in numbers or self.args.save_only_model:
            return save(self, model, trial, *args, **kwargs)
        step = int(self.state.global_step)
        path = Path(self.args.output_dir, f"checkpoint-{step}")
        if here.is_first:
            (path / _STATE).unlink(missing_ok=True)  # the replaced checkpoint's
        here.saves.begins(LIBRARY, numbers[self], step, path, last_file=_STATE)
        result = save(self, model, trial, *args, **kwargs)
        here.saves.ends(LIBRARY, numbers[self], step, path)
        return result

    trainer_class.train, trainer_class._save_checkpoint = continued, recorded


def _reporter_class(base: Any) -> Any:
    class Reporter(base):  # type: ignore[misc]
        """Notes the Trainer's steps and what it logs."""

        def __init__(self, here: HookedRank) -> None:
            self._progress = here.progress

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            if state.is_world_process_zero and self._progress.is_due():
                self._note(state, {})

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **rest: Any) -> None:
            if state.is_world_process_zero:
                self._note(state, {name: value for name, value in (logs or {}).items() if name != "epoch"})

        def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            if state.is_world_process_zero:
                self._note(state, {})

        def _note(self, state: Any, metrics: dict[str, Any]) -> None:
            part = state.global_step / state.max_steps if state.max_steps > 0 else None
            self._progress.note(state.global_step, epoch=int(state.epoch or 0), progress=part, metrics=metrics)

    return Reporter
