"""Metrics as lines of JSON, for comparing trainings."""

import json
import os
import time
from pathlib import Path

#: How a value's type is told; text has none.
TYPES = {int: 2, float: 3}


class EMetrics:
    """Appends to LOG_DIR/evaluation-metrics.txt."""

    TEST_GROUP = "test"
    TRAIN_GROUP = "train"

    def __init__(self, file):
        self.file = file

    @staticmethod
    def open(subId=None):
        folder = Path(os.environ.get("LOG_DIR", "."), subId or "")
        folder.mkdir(parents=True, exist_ok=True)
        return EMetrics((folder / "evaluation-metrics.txt").open("a"))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def record(self, group, iteration, values):
        now = time.time()
        entry = {
            "meta": {"training_id": os.environ.get("TRAINING_ID", ""), "time": round(now * 1000), "rindex": 1},
            "grouplabel": group,
            "etimes": {"iteration": encoded(iteration), "time_stamp": encoded(time.strftime("%Y-%m-%dT%H:%M:%S"))},
            "values": {name: encoded(value) for name, value in values.items()},
        }
        self.file.write(json.dumps(entry) + "\n")
        self.file.flush()

    def close(self):
        self.file.close()


def encoded(value):
    kind = {"type": TYPES[type(value)]} if type(value) in TYPES else {}
    return {**kind, "value": str(value)}
