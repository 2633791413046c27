"""Counts to a goal on all ranks. Told to end, it takes a while to save, and goes on from there when it starts again."""

import argparse
import json
import os
import signal
import time
from pathlib import Path

KEPT = Path(os.environ["CHECKPOINT_DIR"])
SAVED = KEPT / "saved.json"

parser = argparse.ArgumentParser()
parser.add_argument("--goal", type=int, default=100_000)
parser.add_argument("--save-seconds", type=float, default=0.0)
options = parser.parse_args()

told = False


def hear(number, frame) -> None:
    global told
    told = True


signal.signal(signal.SIGTERM, hear)
is_first = os.environ["RANK"] == "0"
count = json.loads(SAVED.read_text())["count"] if SAVED.exists() else 0
while count < options.goal and not told:
    count += 1
    if is_first:
        with (KEPT / "counted").open("a") as file:
            file.write(f"{count}\n")
    time.sleep(0.1)
if told and is_first:
    # Time that a large model takes.
    time.sleep(options.save_seconds)
    beside = SAVED.with_suffix(".new")
    beside.write_text(json.dumps({"count": count, "at": time.time()}))
    os.replace(beside, SAVED)
