"""Callbacks that write the log, the metrics, and at the end the list that a tuner reads."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.environ["FABRIC_HOME"], "libs", "fabric.zip"))
from callbacks import LoggerCallback
from elog import ELog
from emetrics import EMetrics


class EDTLoggerCallback(LoggerCallback):
    def __init__(self):
        self.gs = 0
        self.history = []

    def log_train_metrics(self, loss, acc, completed_batch, worker=0):
        acc = acc / 100.0
        self.gs += 1
        with EMetrics.open() as metrics:
            metrics.record(EMetrics.TEST_GROUP, completed_batch, {"loss": loss, "accuracy": acc})
        with ELog.open() as log:
            log.recordTrain("Train", completed_batch, self.gs, loss, acc, worker)
        self.history.append((self.gs, float(loss)))

    def log_test_metrics(self, loss, acc, completed_batch, worker=0):
        with ELog.open() as log:
            log.recordTest("Test", loss, acc / 100.0, worker)

    def on_train_end(self):
        results = [{"steps": steps, "loss": loss} for steps, loss in self.history]
        with open(os.path.join(os.environ["RESULT_DIR"], "val_dict_list.json"), "w") as file:
            json.dump(results, file)
