"""Logs by MLflow's own client, half of it before a file says that the other half may follow."""

import argparse
import os
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--client", required=True, help="folder with the packages of MLflow's client")
parser.add_argument("--calls", type=int, required=True)
parser.add_argument("--go-on", required=True, help="the file that is waited for")
options = parser.parse_args()

sys.path.append(options.client)
import mlflow  # noqa: E402

with mlflow.start_run():
    for step in range(options.calls):
        if step == options.calls // 2:
            (Path(os.environ["RESULT_DIR"]) / "halfway").touch()
            while not Path(options.go_on).exists():
                time.sleep(0.01)
        mlflow.log_metric("own", step, step=step)
