"""IBM WMLA's `callbacks`: what scripts derive their loggers and callbacks from. Every method may be left out.

Methods are called by what they take: `log_train_metrics(loss, acc, completed_batch, worker)` of the older generation,
or `log_train_metrics(metrics, completed_batch, epoch, worker)` of the newer one. If they use these names, they may
leave arguments out and have them in any order.
"""

from typing import Any

__all__ = ["Callback", "LoggerCallback"]


class LoggerCallback:
    """A logger of metrics: as the driver's it is told all of them on one process, as the workers' on each."""

    # Both generations call their base.
    def log_train_metrics(self, *args: Any, **kwargs: Any) -> None:
        """Log a step. loss: its mean. acc: percent. completed_batch: of all workers in this epoch."""

    def log_test_metrics(self, *args: Any, **kwargs: Any) -> None:
        """Log the same of the held-out data."""

    def on_train_begin(self) -> None:
        """Called before the first step, and again where another process goes on as the driver."""

    def on_train_end(self) -> None:
        """Called after the last epoch."""


class Callback:
    """Calls between epochs, on one process. Numbers of epochs begin with 0."""

    #: The script's own.
    model: Any = None
    #: "optimizer", the script's own; "epochs", how many there will be; and more.
    params: dict[str, Any] = {}

    def on_train_begin(self) -> None:
        """Called before the first epoch, and again where another process goes on as the driver."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Called before an epoch. Changes in `params['optimizer'].param_groups` hold on all workers."""

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        """Called after an epoch, as `on_epoch_begin`. save_model: the model can be exported now."""

    def on_train_end(self) -> None:
        """Called after the last epoch."""
