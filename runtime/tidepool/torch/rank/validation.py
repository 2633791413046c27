"""Validation: measures trained weights on held-out data, instead of training."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils.data import Dataset

from tidepool.journal import replace_file
from tidepool.torch.data import Collate, collate, sample_count, to_device
from tidepool.torch.rank.loss_counts import count_of
from tidepool.torch.rank.metrics_file import MetricsFile

__all__ = [
    "HELD_OUT",
    "MAX_CLASSES",
    "RESULT_FILE",
    "HeldOut",
    "Measuring",
    "measured",
    "summed_loss",
    "write_result",
]

RESULT_FILE = "validation.json"
#: Name of the split of a script that has only one held-out dataset.
HELD_OUT = "held-out"
#: Seconds between two progress records, except before the last one.
RECORD_SECONDS = 0.5
#: Largest number of classes with a confusion matrix; a larger one would be unreadable.
MAX_CLASSES = 100

Predict = Callable[[Any], tuple[Any, Any]]


@dataclass(frozen=True)
class HeldOut:
    """The arguments of `Session.validate_on`."""

    dataset: Dataset[Any] | Callable[[str], Dataset[Any]]
    #: (outputs, labels) -> the mean loss of the batch.
    loss: Callable[[Any, Any], torch.Tensor]
    #: batch -> (outputs, labels); None: the model's outputs for the first of a pair.
    predict: Predict | None = None
    collate_fn: Collate | None = None

    def split(self, wanted: str) -> tuple[str, Dataset[Any]]:
        """Return the data to measure on, and the name of the split."""
        if hasattr(self.dataset, "__getitem__"):
            return HELD_OUT, cast(Dataset[Any], self.dataset)
        return wanted, self.dataset(wanted)


class Measuring:
    """Records the number of measured samples in the file where a training records its steps."""

    def __init__(self, metrics: MetricsFile, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._total = total
        self._clock = clock
        self._done = 0
        self._recorded, self._recorded_at = 0, clock()

    def add(self, samples: int) -> None:
        self._done += samples
        seconds = self._clock() - self._recorded_at
        if seconds < RECORD_SECONDS and self._done < self._total:
            return
        record = {
            "step": self._done,
            "epoch": 0,
            "at": time.time(),
            # Not rounded: the total is derived from this and `step`.
            "progress": self._done / self._total,
            "samples_per_second": round((self._done - self._recorded) / max(seconds, 1e-6), 3),
        }
        self._metrics.write([record])
        self._recorded, self._recorded_at = self._done, self._recorded_at + seconds


def measured(
    model: torch.nn.Module,
    held_out: HeldOut,
    wanted: str,
    metrics: MetricsFile,
    sum_over: Callable[..., list[float]],
) -> dict[str, Any]:
    """Split, samples, mean loss; accuracy in percent and the confusion matrix where outputs are scores of classes.

    sum_over: the session's. confusion[i][j]: samples of class i that were answered by j. The loss is None where it is
    not finite.
    """
    split, dataset = held_out.split(wanted)
    model.eval()
    predict = held_out.predict or (lambda batch: (model(batch[0]), batch[1]))
    classes = _classes(held_out, predict, dataset, next(model.parameters()).device)
    width = 3 + (1 + classes * classes if classes <= MAX_CLASSES else 1)

    def measure(batch: Any) -> torch.Tensor:
        outputs, labels = predict(batch)
        sums = torch.zeros(width, dtype=torch.float64)
        sums[:3] = torch.tensor([*summed_loss(held_out.loss, outputs, labels, len(labels)), len(labels)])
        if classes:
            answers, truth = outputs.argmax(1).cpu(), labels.cpu()
            sums[3] = float((answers == truth).sum())
            if classes <= MAX_CLASSES:
                sums[4:] += torch.bincount(truth * classes + answers, minlength=classes * classes)
        return sums

    measuring = Measuring(metrics, sample_count(dataset))
    loss, counted, samples, correct, *pairs = sum_over(
        dataset, measure, width=width, collate_fn=held_out.collate_fn, on_batch=measuring.add
    )
    mean = loss / counted if counted else math.nan
    rows = [[round(n) for n in pairs[i * classes : (i + 1) * classes]] for i in range(classes)] if pairs else None
    return {
        "split": split,
        "samples": round(samples),
        "loss": mean if math.isfinite(mean) else None,
        "accuracy": 100.0 * correct / samples if classes else None,
        "confusion": rows,
    }


def summed_loss(
    loss: Callable[[Any, Any], torch.Tensor], outputs: Any, labels: Any, samples: int
) -> tuple[float, float]:
    """Return the mean loss of a batch times what it is a mean over, and that number: labels that count, or samples."""
    if not isinstance(outputs, torch.Tensor) or not outputs.is_floating_point():
        return float(loss(outputs, labels)) * samples, samples
    with torch.enable_grad():  # the graph of the loss alone says what it counts
        value = torch.as_tensor(loss(outputs.detach().requires_grad_(), labels))
    count = count_of(value, samples, samples, {}).count
    number = float(samples if count is None else count)
    return (float(value.detach()) * number if number else 0.0), number


def write_result(folder: Path, result: dict[str, Any]) -> None:
    replace_file(folder / RESULT_FILE, json.dumps(result, allow_nan=False))


def _classes(held_out: HeldOut, predict: Predict, dataset: Dataset[Any], device: torch.device) -> int:
    """Number of classes that the outputs are scores of, by the first sample; 0: they are something else."""
    with torch.no_grad():
        outputs, labels = predict(to_device(collate(dataset, [0], held_out.collate_fn), device))
    is_scores = isinstance(outputs, torch.Tensor) and outputs.ndim == 2 and outputs.shape[1] > 1
    is_whole = isinstance(labels, torch.Tensor) and labels.ndim == 1 and labels.dtype in (torch.int64, torch.int32)
    return int(outputs.shape[1]) if is_scores and is_whole else 0
