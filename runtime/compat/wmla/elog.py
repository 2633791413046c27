"""IBM WMLA's `elog`, for scripts that do not bring their own: lines of metrics that notebooks parse."""

import time
from collections.abc import Mapping

from _wmla.log_file import LogFile

__all__ = ["ELog"]


class ELog(LogFile):
    """Lines in `stdout` in the folder for logs. A loss may be all metrics by name, as in the newer generation."""

    name = "stdout"

    def recordText(self, text: str) -> None:
        self.write_line(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}")

    def recordTrain(
        self,
        title: str,
        iteration: int,
        global_steps: int,
        loss: float | Mapping[str, float],
        accuracy: float = 0.0,
        worker: int = 0,
    ) -> None:
        self._record(title, {"Global steps": global_steps, "Iteration": iteration}, loss, accuracy)

    def recordTest(self, title: str, loss: float | Mapping[str, float], accuracy: float = 0.0, worker: int = 0) -> None:
        self._record(title, {}, loss, accuracy)

    def _record(
        self, title: str, counts: Mapping[str, int], loss: float | Mapping[str, float], accuracy: float
    ) -> None:
        metrics = loss if isinstance(loss, Mapping) else {"Loss": loss, "Accuracy": accuracy}
        shown = {name: round(float(value), 5) for name, value in metrics.items()}
        fields = {"Timestamp": round(time.time() * 1000), **counts, **shown}
        self.recordText(",\t".join([title, *(f"{name}: {value}" for name, value in fields.items())]))
