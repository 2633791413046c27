"""IBM WMLA's `emetrics`, for scripts that do not bring their own: metrics as lines of JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from tidepool.env import log_folder, result_folder, training_id

__all__ = ["EMetrics"]

_INTEGER, _REAL = 2, 3


class EMetrics:
    """Appends to `evaluation-metrics.txt` in the folder for logs.

    With a `subId`, which a tuner gives, what was recorded as `TEST_GROUP` becomes `val_dict_list.json` in the end.
    """

    TEST_GROUP = "test"
    TRAIN_GROUP = "train"

    def __init__(self, subId: str | None, f: TextIO | None) -> None:
        self.trainingId = training_id()
        self.rIndex = 1
        self.subId = subId
        self.f = f
        self.test_history: list[dict[str, Any]] = []

    @staticmethod
    def open(subId: str | None = None) -> EMetrics:
        folder = log_folder() / (subId or "")
        folder.mkdir(parents=True, exist_ok=True)
        return EMetrics(subId, (folder / "evaluation-metrics.txt").open("a"))

    def __enter__(self) -> EMetrics:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def record(self, group: str, iteration: int, values: Mapping[str, Any]) -> None:
        """values: of the metrics, by name, at that iteration."""
        now = time.time()
        meta = {"training_id": self.trainingId, "time": round(now * 1000), "rindex": self.rIndex}
        if self.subId:
            meta["subid"] = str(self.subId)
            if group == EMetrics.TEST_GROUP:
                self.test_history.append({"steps": iteration, **values})
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now)) + f".{round(now * 1000) % 1000:03}"
        entry = {
            "meta": meta,
            "grouplabel": group,
            "etimes": {"iteration": _encoded(iteration), "time_stamp": _encoded(stamp)},
            "values": {name: _encoded(value) for name, value in values.items()},
        }
        if self.f is not None:
            self.f.write(json.dumps(entry) + "\n")
            self.f.flush()

    def close(self) -> None:
        if self.f is not None:
            self.f.close()
        if self.subId:
            folder = result_folder() or Path()
            (folder / "val_dict_list.json").write_text(json.dumps(self.test_history))


def _encoded(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"type": _INTEGER, "value": str(value)}
    if isinstance(value, float):
        return {"type": _REAL, "value": str(value)}
    return {"value": str(value)}
