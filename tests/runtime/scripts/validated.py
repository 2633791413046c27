"""A small classifier in the native API that says what it is measured on."""

import argparse

import torch
from tidepool.torch import Session
from torch import nn
from torch.utils.data import TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--on", default="splits", choices=["splits", "one", "regression", "nothing"])
options = parser.parse_args()


def samples(count: int, seed: int) -> TensorDataset:
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(inputs, (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0).long())


def split(name: str) -> TensorDataset:
    return samples({"validation": 300, "testing": 70}[name], 5)


torch.manual_seed(3)
model = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.BatchNorm1d(16), nn.Linear(16, 3))
session = Session(model, torch.optim.Adam(model.parameters(), lr=0.01), effective_batch_size=32)
if options.on == "splits":
    session.validate_on(split, nn.functional.cross_entropy)
elif options.on == "one":
    session.validate_on(samples(40, 6), nn.functional.cross_entropy)
elif options.on == "regression":
    session.validate_on(
        samples(40, 6), nn.functional.mse_loss, predict=lambda batch: (model(batch[0])[:, 0], batch[1].float())
    )
for _ in session.epochs(2):
    for step in session.steps(samples(640, 4)):
        for inputs, labels in step:
            step.backward(nn.functional.cross_entropy(model(inputs), labels))
print("after the loop")
