"""Results that a script reports to `nni`: points of curves, under the names of its metrics.

A plain script's are lines of a file, which the executor reads like those of a library. The step of such a line is the
number of intermediate results so far. A training with a session adds them to the record of its newest step.
"""

import json
import math
import time
from collections.abc import Mapping
from contextlib import suppress

from tidepool import rank_process
from tidepool.env import RankContext
from tidepool.nni_environment import REPORTS_FILE

__all__ = ["report"]


def report(context: RankContext, step: int, metrics: Mapping[str, float]) -> bool:
    """Record the metrics, of which those of the first process count; False: there is no step yet to record them at.

    With a session, the other processes keep theirs until the step is written: the first one may leave before.
    """
    if context.launch.engine == "elastic":
        return rank_process.report(metrics)
    if not rank_process.is_first():
        return True
    numbers = {name: _plain(value) for name, value in metrics.items()}
    file = context.folder / REPORTS_FILE
    line = {"step": step, "epoch": 0, "progress": None, "at": time.time(), "metrics": numbers}
    with suppress(OSError):  # a full disk ends no training
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as stream:
            stream.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    return True


def _plain(value: float) -> float | None:
    """Return the number, as JSON has it; None for NaN and infinity."""
    return float(value) if math.isfinite(value) else None
