"""Digits in the native API. Each rank writes down every training sample that it reads: epoch, index, step."""

import argparse
import os
import time
from pathlib import Path

import numpy
import torch
from tidepool.torch import Session
from torch import nn
from torch.utils.data import Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--learning-rate", type=float, default=0.1)
parser.add_argument("--step-seconds", type=float, default=0.0)
parser.add_argument("--sample-seconds", type=float, default=0.0, help="what a rank takes longer for each sample")
parser.add_argument("--hurry", default="", help="once this file is there, steps are not drawn out any more")
parser.add_argument("--checkpoint-every", type=int, default=None)
parser.add_argument("--noisy", type=int, default=0, help="1: with BatchNorm and dropout")
parser.add_argument("--virtual-ranks", type=int, default=None, help="off the cluster: in exactness bitwise")
parser.add_argument("--out", default="")
options = parser.parse_args()


class Recorded(Dataset):
    def __init__(self):
        with numpy.load(Path(os.environ["DATA_DIR"]) / "train.npz") as arrays:
            self.images = torch.from_numpy(arrays["images"])
            self.labels = torch.from_numpy(arrays["labels"])
        self.epoch = self.step = 0
        self.lines = (Path(os.environ["LOG_DIR"]) / "samples").open("a", buffering=1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        self.lines.write(f"{self.epoch} {index} {self.step}\n")
        return self.images[index], self.labels[index]


torch.manual_seed(0)
noise = [nn.BatchNorm1d(64), nn.Dropout(0.2)] if options.noisy else []
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), *noise, nn.Tanh(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=0.9)
data = Recorded()
session = Session(
    model,
    optimizer,
    effective_batch_size=64,
    checkpoint_every=options.checkpoint_every,
    exactness="bitwise" if options.virtual_ranks else None,
    virtual_ranks=options.virtual_ranks,
)
for epoch in session.epochs(options.epochs):
    data.epoch = epoch
    for step in session.steps(data):
        data.step = step.number
        for images, labels in step:
            time.sleep(options.sample_seconds * len(images))
            step.backward(nn.functional.cross_entropy(model(images), labels))
        if not (options.hurry and Path(options.hurry).exists()):
            time.sleep(options.step_seconds)

if options.out:
    torch.save(model.state_dict(), options.out)
