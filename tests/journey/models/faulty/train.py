"""A small training whose script fails in the way that it is asked for, in the sixth step or while a sample is read."""

import argparse
import ctypes
import os
import time
from pathlib import Path

import torch
from tidepool.torch import Session
from torch import nn
from torch.utils.data import Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--fails-by", required=True)
parser.add_argument("--flag", default="", help="once: a file that is there when it has happened")
options = parser.parse_args()
if options.fails_by == "never-training":
    time.sleep(3600)  # never-training


class Data(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if options.fails_by == "once" and index == 13 and not Path(options.flag).exists():
            Path(options.flag).touch()
            raise ValueError("sample 13 could not be read")
        return torch.full((4,), index / 64), index % 2


def fail():
    if options.fails_by == "error":
        raise RuntimeError("these are bad labels")  # error
    if options.fails_by == "memory":
        raise MemoryError("no room for the activations")  # memory
    if options.fails_by == "exit":
        os._exit(3)
    if options.fails_by == "crash":
        ctypes.string_at(0)  # crash


torch.manual_seed(0)
model = nn.Linear(4, 2)
session = Session(model, torch.optim.SGD(model.parameters(), lr=0.1), effective_batch_size=8)
for _ in session.epochs(2):
    for step in session.steps(Data()):
        for inputs, labels in step:
            if step.number == 5:
                fail()
            step.backward(nn.functional.cross_entropy(model(inputs), labels))
