"""A training of a known speed: its steps sleep as long as `--base` and the others say, and need no processor."""

import argparse
import time

import torch
from tidepool.torch import Session

BATCH = 64
#: Number of steps of an epoch.
EPOCH = 25

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--base", type=float, default=0.0, help="seconds of a micro-batch")
parser.add_argument("--per-sample", type=float, default=0.0, help="further seconds for each of its samples")
parser.add_argument("--sum", type=float, default=0.0, help="seconds of a step on more than one GPU")
options = parser.parse_args()

model = torch.nn.Linear(20, 2)


def pass_sum() -> None:
    if session.world_size > 1:
        time.sleep(options.sum)


optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
session = Session(model, optimizer, effective_batch_size=BATCH, before_update=pass_sum)
data = torch.utils.data.TensorDataset(torch.randn(EPOCH * BATCH, 20), torch.randint(2, (EPOCH * BATCH,)))
for _ in session.epochs(options.epochs):
    for step in session.steps(data):
        for inputs, wanted in step:
            time.sleep(options.base + options.per_sample * len(wanted))
            step.backward(torch.nn.functional.cross_entropy(model(inputs), wanted))
