"""The training's log, one line per call, as the notebooks of WMLA's users parse it."""

import os
import time
from pathlib import Path


class ELog:
    """Appends to LOG_DIR/stdout."""

    def __init__(self, file):
        self.file = file

    @staticmethod
    def open(subId=None):
        folder = Path(os.environ.get("LOG_DIR", "."), subId or "")
        folder.mkdir(parents=True, exist_ok=True)
        return ELog((folder / "stdout").open("a"))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def recordText(self, text):
        self.file.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}\n")
        self.file.flush()

    def recordTrain(self, title, iteration, global_steps, loss, accuracy, worker):
        numbers = {"Global steps": global_steps, "Iteration": iteration, **scores(loss, accuracy)}
        self.recordText(line(title, numbers))

    def recordTest(self, title, loss, accuracy, worker):
        self.recordText(line(title, scores(loss, accuracy)))

    def close(self):
        self.file.close()


def scores(loss, accuracy):
    return {"Loss": round(float(loss), 5), "Accuracy": round(float(accuracy), 5)}


def line(title, numbers):
    fields = {"Timestamp": round(time.time() * 1000), **numbers}
    return ",\t".join([title, *(f"{name}: {value}" for name, value in fields.items())])
