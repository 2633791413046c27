"""IBM WMLA's `monitor_pth`: lines on the standard output that its charts of single-process trainings are made of.

Charts here are made of the metrics that are recorded beside them.
"""

import sys
import time
from typing import Any

import torch
from emetrics import EMetrics

__all__ = ["PytorchMonitor"]


class PytorchMonitor:
    """Counter of the batches that it is told of; accuracies are shares, in 0..1."""

    def __init__(self) -> None:
        self._trained = 0
        self._tested = 0

    def log_train(self, epoch: int, batch_idx: int, batch_len: int, target: Any, loss: Any, output: Any) -> None:
        """Print a batch. batch_idx: in its epoch. loss: its mean. output: a score of each class; target: classes."""
        self._trained += 1
        now = round(time.time() * 1000)
        _say(f"Timestamp {now}, Iteration {self._trained}")
        _say(f"Timestamp {now}, batchIdx {batch_idx}")
        _say(f"batches :{self._trained} {float(torch.as_tensor(loss).detach())}")
        _say_scores(self._trained, "train", target, loss, output)

    def log_test(
        self, epoch: int, same_epoch: int, batch_idx: int, batch_len: int, target: Any, loss: Any, output: Any
    ) -> None:
        """Print a batch of the test; WMLA's samples give the epoch twice."""
        self._tested += 1
        _say_scores(self._tested, "test", target, loss, output)


def _say_scores(iteration: int, what: str, target: torch.Tensor, loss: Any, output: torch.Tensor) -> None:
    correct = (output.detach().argmax(1) == target).double().mean()
    scores = {"accuracy": float(correct), "loss": float(torch.as_tensor(loss).detach())}
    for name, value in scores.items():
        _say(f"Iteration {iteration}: tag {what}_{name}, simple_value {value}")
    with EMetrics.open() as metrics:
        metrics.record(what, iteration, scores)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
