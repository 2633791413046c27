"""IBM WMLA's `emetrics`, for scripts that do not bring their own: metrics as lines of JSON."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, TextIO

from _wmla.log_file import LogFile
from tidepool.env import log_folder, result_folder

__all__ = ["EMetrics"]

_INTEGER, _REAL = 2, 3


class EMetrics(LogFile):
    """Metrics appended to `evaluation-metrics.txt` in the folder for logs.

    With a `subId`, which a tuner gives, what was recorded as `TEST_GROUP` becomes `val_dict_list.json` in the end.
    """

    name = "evaluation-metrics.txt"
    TEST_GROUP = "test"
    TRAIN_GROUP = "train"

    def __init__(self, subId: str | None, f: TextIO) -> None:
        super().__init__(subId, f)
        self.rIndex = 1
        self.test_history: list[dict[str, Any]] = []

    @classmethod
    def open(cls, subId: str | None = None) -> Self:
        """Open the file. That of a tuner's run lies in a folder of its own, and curves are read outside of it."""
        made = super().open(subId)
        usual = log_folder() / cls.name
        if subId and not usual.exists():
            usual.hardlink_to(log_folder() / subId / cls.name)
        return made

    def record(self, group: str, iteration: int, values: Mapping[str, Any]) -> None:
        """Write the metrics of an iteration. values: by name."""
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
        self.write_line(json.dumps(entry))

    def close(self) -> None:
        super().close()
        if self.subId:
            folder = result_folder() or Path()
            (folder / "val_dict_list.json").write_text(json.dumps(self.test_history))


def _encoded(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"type": _INTEGER, "value": str(value)}
    if isinstance(value, float):
        return {"type": _REAL, "value": str(value)}
    return {"value": str(value)}
