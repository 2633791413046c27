"""Arguments of loggers, as scripts for WMLA's generations and its guides declare them."""

from typing import Any

import pytest
import torch
from _wmla.driver import log
from callbacks import LoggerCallback
from fabric_model import FabricModel
from torch.nn.functional import cross_entropy

from tests.runtime.compat.test_fabric_hooks import BATCH, BATCHES, datasets

METRICS = {"loss": 0.5, "accuracy": 75.0, "f1": 0.25}


def older(self: Any, loss: Any, acc: Any, completed_batch: Any, worker: Any = 0) -> None:
    self.told = {"loss": loss, "acc": acc, "completed_batch": completed_batch, "worker": worker}


def older_in_other_words(self: Any, value: Any, percent: Any, batches: Any) -> None:
    self.told = {"loss": value, "acc": percent, "completed_batch": batches}


def older_in_another_order(self: Any, worker: Any, completed_batch: Any, acc: Any, *, loss: Any) -> None:
    self.told = {"loss": loss, "acc": acc, "completed_batch": completed_batch, "worker": worker}


def newer(self: Any, metrics: Any, completed_batch: Any, epoch: Any, worker: Any = 0) -> None:
    self.told = {"metrics": metrics, "completed_batch": completed_batch, "epoch": epoch, "worker": worker}


def newer_without_epoch(self: Any, metrics: Any, completed_batch: Any, worker: Any = 0) -> None:
    self.told = {"metrics": metrics, "completed_batch": completed_batch, "worker": worker}


def newer_in_another_order(self: Any, epoch: Any, completed_batch: Any, *, metrics: Any, **others: Any) -> None:
    self.told = {"metrics": metrics, "completed_batch": completed_batch, "epoch": epoch, **others}


def newer_in_other_words(self: Any, metrics: Any, batches: Any, epoch: Any) -> None:
    self.told = {"metrics": metrics, "completed_batch": batches, "epoch": epoch}


@pytest.mark.parametrize(
    "method",
    [
        *(older, older_in_other_words, older_in_another_order, newer, newer_without_epoch, newer_in_another_order),
        newer_in_other_words,
    ],
    ids=lambda method: method.__name__,
)
def test_each_argument_gets_its_value(method: Any) -> None:
    logger: Any = type("Logger", (LoggerCallback,), {"log_train_metrics": method})()
    log(logger, "log_train_metrics", METRICS, 7, 2, 3)
    values = {"metrics": METRICS, "loss": 0.5, "acc": 75.0, "completed_batch": 7, "epoch": 2, "worker": 3}
    assert logger.told == {name: values[name] for name in logger.told}


def test_the_base_takes_the_arguments_of_both() -> None:
    base = LoggerCallback()
    for method in (base.log_train_metrics, base.log_test_metrics):
        assert method(0.5, 75.0, 7, worker=3) is None
        assert method(metrics=METRICS, completed_batch=7, epoch=2) is None


class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def log_train_metrics(self, metrics: Any, completed_batch: Any, epoch: Any, worker: Any = 0) -> None:
        self.calls += 1


@pytest.mark.parametrize("metrics", [None, []])
def test_loggers_by_position_come_in_the_order_of_the_newer_guide(metrics: Any) -> None:
    """Metrics, then the worker's logger, then the driver's."""
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    worker, driver = Counter(), Counter()
    FabricModel(model, datasets, cross_entropy, optimizer, metrics, worker, driver).train(1, BATCH)
    assert (worker.calls, driver.calls) == (BATCHES, BATCHES)
