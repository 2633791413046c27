"""MNIST as people write it for IBM WMLA's elastic distributed training, with loggers and metrics.

Its loggers lie beside it; `FabricModel` comes out of $FABRIC_HOME/libs/fabric.zip. The data are the files of MNIST
below DATA_DIR; `python make_idx.py FOLDER` makes small ones.
"""

import argparse
import os
import sys
from pathlib import Path

import torch
from torch import nn, optim
from torch.nn import functional

sys.path.insert(0, os.path.join(os.environ["FABRIC_HOME"], "libs", "fabric.zip"))
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel
from idx import read

DATA_DIR = Path(os.environ.get("DATA_DIR", "."))
print(f"results: {os.environ['RESULT_DIR']}, log: {os.environ['LOG_DIR']}")


class Net(nn.Module):
    """[n, 1, 28, 28] -> [n, 10] log-probabilities."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 5, stride=2)
        self.conv2 = nn.Conv2d(8, 16, 5, stride=2)
        self.fc1 = nn.Linear(16 * 4 * 4, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, images):
        hidden = functional.relu(self.conv1(images))
        hidden = functional.relu(self.conv2(hidden)).flatten(1)
        return functional.log_softmax(self.fc2(functional.relu(self.fc1(hidden))), dim=1)


def get_datasets():
    return read(DATA_DIR, "train"), read(DATA_DIR, "t10k")


def main():
    parser = argparse.ArgumentParser(description="MNIST, elastic and distributed")
    parser.add_argument("--batchsize", type=int, default=64, help="images that one GPU computes at once")
    parser.add_argument("--test-batch-size", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate")
    parser.add_argument("--momentum", type=float, default=0.5)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--no-cuda", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--save-model", action="store_true")
    parser.add_argument("--numWorker", type=int, default=2, help="the most GPUs")
    parser.add_argument("--epochs", type=int, default=5)
    args, unknown = parser.parse_known_args()
    print("arguments:", args, "unknown:", unknown)

    torch.manual_seed(args.seed)
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    edt_m = FabricModel(model, get_datasets, functional.nll_loss, optimizer, driver_logger=EDTLoggerCallback())
    edt_m.train(args.epochs, args.batchsize, args.numWorker)


if __name__ == "__main__":
    main()
