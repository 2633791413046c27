"""IBM WMLA's `elog`, for scripts that do not bring their own: lines of metrics that notebooks parse."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TextIO

from tidepool.env import log_folder, training_id

__all__ = ["ELog"]


class ELog:
    """Appends to `stdout` in the folder for logs."""

    def __init__(self, subId: str | None, f: TextIO | None) -> None:
        self.trainingId = training_id()
        self.subId = subId
        self.f = f

    @staticmethod
    def open(subId: str | None = None) -> ELog:
        folder = log_folder() / (subId or "")
        folder.mkdir(parents=True, exist_ok=True)
        return ELog(subId, (folder / "stdout").open("a"))

    def __enter__(self) -> ELog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def recordText(self, text: str) -> None:
        if self.f is not None:
            self.f.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}\n")
            self.f.flush()

    def recordTrain(
        self,
        title: str,
        iteration: int,
        global_steps: int,
        loss: float | Mapping[str, float],
        accuracy: float = 0.0,
        worker: int = 0,
    ) -> None:
        """loss: or, in the newer generation, all metrics by name."""
        self._record(title, {"Global steps": global_steps, "Iteration": iteration}, loss, accuracy)

    def recordTest(self, title: str, loss: float | Mapping[str, float], accuracy: float = 0.0, worker: int = 0) -> None:
        self._record(title, {}, loss, accuracy)

    def close(self) -> None:
        if self.f is not None:
            self.f.close()

    def _record(
        self, title: str, counts: Mapping[str, int], loss: float | Mapping[str, float], accuracy: float
    ) -> None:
        metrics = loss if isinstance(loss, Mapping) else {"Loss": loss, "Accuracy": accuracy}
        shown = {name: round(float(value), 5) for name, value in metrics.items()}
        fields = {"Timestamp": round(time.time() * 1000), **counts, **shown}
        self.recordText(",\t".join([title, *(f"{name}: {value}" for name, value in fields.items())]))
