"""A linear regression whose steps sleep: the loss after a part of the training tells the learning rates apart.

Each sample takes the same time, on however many GPUs a step is divided, and needs no processor meanwhile.
"""

import argparse
import time

import torch
from tidepool.torch import Session

BATCH, WIDTH = 64, 20
#: Number of steps of an epoch.
EPOCH = 4

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=27)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--momentum", type=float, default=0.0)
parser.add_argument("--per-sample", type=float, default=0.004, help="seconds of a sample on one GPU")
options = parser.parse_args()

torch.manual_seed(0)
truth = torch.randn(WIDTH, 1)
inputs = torch.randn(EPOCH * BATCH, WIDTH) * torch.linspace(0.2, 1.5, WIDTH)
data = torch.utils.data.TensorDataset(inputs, inputs @ truth + 0.1 * torch.randn(len(inputs), 1))
model = torch.nn.Linear(WIDTH, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=options.momentum)
session = Session(model, optimizer, effective_batch_size=BATCH)
for _ in session.epochs(options.epochs):
    for step in session.steps(data):
        for part, wanted in step:
            time.sleep(options.per_sample * len(wanted))
            step.backward(torch.nn.functional.mse_loss(model(part), wanted))
    with torch.no_grad():
        session.report(error=float(torch.nn.functional.mse_loss(model(data.tensors[0]), data.tensors[1])))
