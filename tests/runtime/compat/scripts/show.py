"""Writes down what it finds around it, and trains for an epoch."""

import argparse
import json
import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, os.path.join(os.environ["FABRIC_HOME"], "libs", "fabric.zip"))
sys.path.append(str(Path(__file__).parents[4] / "examples" / "mnist-edt"))
import fabric_model
from callbacks import LoggerCallback
from idx import read
from torch.nn.functional import cross_entropy

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
options = parser.parse_args()
data, results = Path(os.environ["DATA_DIR"]), Path(os.environ["RESULT_DIR"])
facts = {
    "environment": dict(os.environ),
    "cwd": os.getcwd(),
    "path": list(sys.path),
    "fabric_model": fabric_model.__file__,
    "member_id": os.environ["TIDEPOOL_MEMBER_ID"],
}


class Logger(LoggerCallback):
    def log_train_metrics(self, loss, acc, completed_batch, worker=0):
        facts["log_dir_in_logger"] = os.environ["LOG_DIR"]

    def on_train_end(self):
        (results / f"shown-{facts['member_id']}.json").write_text(json.dumps(facts))
        (results / "val_dict_list.json").write_text(json.dumps([{"steps": 45, "mine": 0.5}]))


model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
fabric = fabric_model.FabricModel(
    model, lambda: (read(data, "train"), read(data, "t10k")), cross_entropy, optimizer, Logger()
)
fabric.train(options.epochs, 32, 4)
