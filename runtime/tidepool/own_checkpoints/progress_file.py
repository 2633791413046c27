"""The file in which a rank notes how far its library has come: a line of JSON for each moment."""

import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["PROGRESS_FILE", "SPEED", "ProgressFile"]

#: Path below the attempt's folder.
PROGRESS_FILE = "journal/library.jsonl"
#: Metric that each moment has: a library may give others rarely, and the time left is estimated from them.
SPEED = "steps_per_second"
_EVERY_SECONDS = 1.0


class ProgressFile:
    def __init__(self, attempt_folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = attempt_folder / PROGRESS_FILE
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        #: Time and step of the last line without metrics.
        self._last: tuple[float, int] | None = None

    def is_due(self) -> bool:
        return self._last is None or self._clock() - self._last[0] >= _EVERY_SECONDS

    def note(self, step: int, *, epoch: int, progress: float | None, metrics: Mapping[str, Any]) -> None:
        """Append a moment. progress: of the whole training, 0 to 1; None: unknown."""
        now = self._clock()
        numbers = {name: _plain(value) for name, value in metrics.items() if _is_number(value)}
        if self._last is None or self._last[1] > step:  # begins here, or anew
            self._last = now, step
        elif now - self._last[0] >= _EVERY_SECONDS and step > self._last[1]:
            numbers[SPEED] = round((step - self._last[1]) / (now - self._last[0]), 4)
            self._last = now, step
        part = None if progress is None else min(1.0, max(0.0, progress))
        line = {"step": step, "epoch": epoch, "progress": part, "at": now, "metrics": numbers}
        with suppress(OSError), open(self._path, "ab") as file:  # a full disk ends no training
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(value: float) -> float | None:
    """Return the number, as JSON has it; None for NaN and infinity."""
    return float(value) if math.isfinite(value) else None
