"""A script without a session that is slow by one cause of a known size. Each rank writes what the cause has taken."""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--cause", choices=("data", "compute", "optimizer", "script", "validation"))
parser.add_argument("--rank", type=int, default=None, help="the only one that is slow")
options = parser.parse_args()
rank = int(os.environ["RANK"])
slept, sums = 0.0, []


def slow(cause):
    global slept
    if cause == options.cause and options.rank in (None, rank):
        start = time.monotonic()
        time.sleep(0.25)
        slept += time.monotonic() - start


class Network(nn.Linear):
    def forward(self, inputs):
        slow("compute")
        return super().forward(inputs)


class Descent(torch.optim.SGD):
    def step(self, closure=None):
        slow("optimizer")
        return super().step(closure)


def collate(samples):
    slow("data")
    return torch.utils.data.default_collate(samples)


torch.manual_seed(1)
dist.init_process_group("gloo")
samples = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
model = DistributedDataParallel(Network(8, 1))
optimizer = Descent(model.parameters(), lr=0.01)
held_out = DataLoader(samples, batch_size=64)
while len(sums) < 40:
    for inputs, targets in DataLoader(samples, batch_size=16, collate_fn=collate):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        slow("script")
        sums.append(slept)
    with torch.no_grad():
        for _ in held_out:
            slow("validation")
place = Path(os.environ["LOG_DIR"], "truth.json")
place.with_suffix(".part").write_text(json.dumps(sums))
place.with_suffix(".part").rename(place)
time.sleep(600)  # the test reads the journal, and ends the training
