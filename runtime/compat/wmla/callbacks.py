"""IBM WMLA's `callbacks`: what scripts derive their loggers and callbacks from. Every method may be left out.

Methods are called by what they take: `log_train_metrics(loss, acc, completed_batch, worker)` of the older generation,
or `log_train_metrics(metrics, completed_batch, epoch, worker)` of the newer one.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Callback", "LoggerCallback"]


class LoggerCallback:
    """Is told the metrics: as the driver's logger all of them on one process, as the workers' on each."""

    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        """loss: of the step, a mean. acc: percent. completed_batch: of all workers in this epoch."""

    def log_test_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        """The same on the held-out data."""

    def on_train_begin(self) -> None:
        """Before the first step; again where another process goes on as the driver."""

    def on_train_end(self) -> None:
        """After the last epoch."""


class Callback:
    """Is called between epochs, on one process. Numbers of epochs begin with 0."""

    #: The script's own.
    model: Any = None
    #: "optimizer", the script's own; "epochs", how many there will be; and more.
    params: dict[str, Any] = {}

    def on_train_begin(self) -> None:
        """Before the first epoch; again where another process goes on as the driver."""

    def on_epoch_begin(self, epoch: int) -> None:
        """What it changes in `params['optimizer'].param_groups` holds on all workers."""

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        """As `on_epoch_begin`. save_model: the model can be exported now."""

    def on_train_end(self) -> None:
        """After the last epoch."""
