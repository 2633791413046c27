"""Lightning's Trainer: `fit()` continues, as with `ckpt_path` and the newest file that it has saved."""

import functools
import inspect
import sys
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from tidepool.own_checkpoints.hooked_rank import HookedRank

__all__ = ["LIBRARY", "hook"]

LIBRARY = "lightning"


def hook(module: str, here: HookedRank) -> None:
    trainer_class: Any = sys.modules[module].Trainer
    numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
    fit, save = trainer_class.fit, trainer_class.save_checkpoint
    signature = inspect.signature(fit)
    callbacks = sys.modules[f"{module.split('.trainer.')[0]}.callbacks"]
    reporter_class = _reporter_class(callbacks.Callback)

    @functools.wraps(fit)
    def continued(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs)
        training = numbers[self] = here.begin_training(LIBRARY)
        newest = here.newest(LIBRARY, training)
        if newest is not None and given.arguments.get("ckpt_path") is None and not _has_path(self):
            given.arguments["ckpt_path"] = str(newest.path)
            if "weights_only" in signature.parameters and given.arguments.get("weights_only") is None:
                given.arguments["weights_only"] = False  # this training has written the file itself
            here.tell(newest, f"ckpt_path={str(newest.path)!r}")
        if _spawns(self):  # a callback would have to be pickled
            return fit(*given.args, **given.kwargs)
        reporter = reporter_class(here)
        self.callbacks.insert(0, reporter)  # checkpoints come last
        try:
            return fit(*given.args, **given.kwargs)
        finally:
            self.callbacks.remove(reporter)

    @functools.wraps(save)
    def recorded(self: Any, filepath: Any, weights_only: Any = None, *args: Any, **kwargs: Any) -> Any:
        result = save(self, filepath, weights_only, *args, **kwargs)
        # A file elsewhere, such as s3://, cannot be looked for.
        if self in numbers and not weights_only and "://" not in str(filepath):
            here.saves.ends(LIBRARY, numbers[self], int(self.global_step), Path(filepath))
        return result

    trainer_class.fit, trainer_class.save_checkpoint = continued, recorded


def _has_path(trainer: Any) -> bool:
    """Return whether the script has set `trainer.ckpt_path`."""
    return bool(getattr(trainer._checkpoint_connector, "_user_managed", False))


def _spawns(trainer: Any) -> bool:
    return getattr(trainer.strategy.launcher, "_start_method", "") in ("spawn", "forkserver")


def _reporter_class(base: Any) -> Any:
    class Reporter(base):  # type: ignore[misc]
        """Notes Lightning's steps, the loss of a step, and what the script logs."""

        def __init__(self, here: HookedRank) -> None:
            self._progress = here.progress
            self._noted: dict[str, float] = {}
            #: Number of batches of the epoch that are done.
            self._batches = 0.0

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if trainer.is_global_zero and self._progress.is_due():
                self._batches = batch_idx + 1
                self._note(trainer, _loss(trainer, outputs))

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            if trainer.is_global_zero:
                self._batches = trainer.num_training_batches
                self._note(trainer, {})

        def on_validation_end(self, trainer: Any, module: Any) -> None:
            if trainer.is_global_zero and not trainer.sanity_checking:
                self._note(trainer, {})

        def on_train_end(self, trainer: Any, module: Any) -> None:
            if trainer.is_global_zero:
                self._note(trainer, {})

        def _note(self, trainer: Any, loss: dict[str, float]) -> None:
            logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
            # Values stay until others replace them: those of an epoch's end would be noted at each later step.
            new = {name: value for name, value in logged.items() if self._noted.get(name) != value}
            self._noted = logged
            self._progress.note(
                int(trainer.global_step),
                epoch=int(trainer.current_epoch),
                progress=_part(trainer, self._batches),
                metrics={**loss, **new},
            )

    return Reporter


def _loss(trainer: Any, outputs: Any) -> dict[str, float]:
    loss: Any = outputs.get("loss") if isinstance(outputs, dict) else outputs
    if not hasattr(loss, "item") or loss.numel() != 1:
        return {}
    return {"loss": float(loss.item()) * int(trainer.accumulate_grad_batches)}


def _part(trainer: Any, batches: float) -> float | None:
    """Return the progress of the whole training: by its steps or epochs, whichever end it reaches first."""
    parts = []
    if trainer.max_steps and trainer.max_steps > 0:
        parts.append(trainer.global_step / trainer.max_steps)
    if trainer.max_epochs and trainer.max_epochs > 0 and trainer.num_training_batches:
        done = trainer.current_epoch + batches / trainer.num_training_batches
        parts.append(done / trainer.max_epochs)
    return max(parts, default=None)
