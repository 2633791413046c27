"""Metrics that a script for IBM's WMLA records by itself, as points of curves.

Its `EMetrics`, or a copy that it brings along, appends lines of JSON to `evaluation-metrics.txt`. Iterations may begin
anew in each epoch; steps go on, so that a curve does not run back.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["LAST_STEP", "RECORDED_FILE", "RecordedMetrics", "chart_value"]

#: File in the attempt's folder: a link to the file of rank 0.
RECORDED_FILE = "evaluation-metrics.txt"
_TRAINING = "train"
#: Largest step that every reader of JSON takes as it is.
LAST_STEP = 2**53


@dataclass
class _Group:
    """Place of a group's records."""

    iteration: int
    step: int
    names: set[str]
    #: Between the last two iterations.
    distance: int = 1

    def follow(self, iteration: int, names: set[str]) -> int:
        """Return the step of the next record."""
        if iteration == self.iteration and not names & self.names:  # the same moment, in a second record
            self.names |= names
            return self.step
        if iteration > self.iteration:
            self.distance = iteration - self.iteration
        self.step += self.distance
        self.iteration, self.names = iteration, names
        return self.step


class RecordedMetrics:
    """The lines of one file, read from its beginning on."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def point(self, line: bytes) -> dict[str, Any]:
        """Return `step`, `at` and the metrics of a line; nothing for a line that is no record of numbers.

        Metrics of other groups than that of training have the group's name before their own. An accuracy of 1 or less
        is a share, as WMLA's samples record it, and becomes percent. What is not finite is None. Iterations that no
        training reaches are none.
        """
        try:
            record = json.loads(line)
            group = str(record["grouplabel"])
            iteration = int(record["etimes"]["iteration"]["value"])
            at = float(record["meta"]["time"]) / 1000
            metrics = _metrics(group, record["values"])
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
            return {}
        if not metrics or abs(iteration) > LAST_STEP:
            return {}
        step = self._step(group, iteration, set(metrics))
        return {"step": step, "at": at, **metrics} if step <= LAST_STEP else {}

    def _step(self, group: str, iteration: int, names: set[str]) -> int:
        known = self._groups.get(group)
        if known is not None:
            return known.follow(iteration, names)
        self._groups[group] = _Group(iteration, max(0, iteration), names)
        return self._groups[group].step


def _metrics(group: str, values: Mapping[str, Mapping[str, str]]) -> dict[str, float | None]:
    found = {}
    for name, encoded in values.items():
        try:
            value = float(encoded["value"])
        except ValueError:  # a text, which no curve can show
            continue
        prefix = "" if group == _TRAINING or name.startswith(f"{group}_") else f"{group}_"
        found[f"{prefix}{name}"] = chart_value(name, value)
    return found


def chart_value(name: str, value: float) -> float | None:
    """A metric as charts draw it: what is not finite is None, an accuracy in percent. One of 1 or less is a share."""
    if not math.isfinite(value):
        return None
    return 100 * value if name.endswith("accuracy") and 0 <= value <= 1 else value
