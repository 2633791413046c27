"""The loggers that WMLA's samples bring along, for one that lacks them."""

import time

from callbacks import Callback, LoggerCallback
from elog import ELog
from emetrics import EMetrics

__all__ = ["EDTLoggerCallback", "EDTTrainCallback"]


class EDTLoggerCallback(LoggerCallback):
    """A logger that writes each call to the log and the metrics, accuracies in 0..1."""

    def __init__(self) -> None:
        self.gs = 0

    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        self.gs += 1
        with EMetrics.open() as metrics:
            metrics.record(EMetrics.TEST_GROUP, completed_batch, {"loss": loss, "accuracy": acc / 100.0})
        with ELog.open() as log:
            log.recordTrain("Train", completed_batch, self.gs, loss, acc / 100.0, worker)

    def log_test_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        with ELog.open() as log:
            log.recordTest("Test", loss, acc / 100.0, worker)


class EDTTrainCallback(Callback):
    """A callback that says in the log how far the training is."""

    def __init__(self, output_model_path: str) -> None:
        super().__init__()
        self.output_model_path = output_model_path
        self.start_time = time.time()

    def log_message(self, message: str) -> None:
        with ELog.open() as log:
            log.recordText(message)

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        self.log_message(f"Epoch {epoch + 1} of {self.params['epochs']} is over.")
        if epoch == self.params["epochs"] - 1:
            self.log_message(f"The training took {(time.time() - self.start_time) / 60:.2f} minutes.")
