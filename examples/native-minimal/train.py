"""The shortest elastic training: handwritten digits in the native API.

Runs by `python train.py` (one process) and as a Tidepool job (any number of GPUs). train.npz and test.npz are in
DATA_DIR.
"""

import os
from pathlib import Path

import numpy
import torch
from tidepool.torch import Session
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset


def read(name: str) -> TensorDataset:
    with numpy.load(Path(os.environ.get("DATA_DIR", ".")) / name) as arrays:
        return TensorDataset(torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"]))


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
session = Session(model, optimizer, effective_batch_size=64)

train_set = read("train.npz")
for _ in session.epochs(int(os.environ.get("EPOCHS", "10"))):
    for step in session.steps(train_set):
        for images, labels in step:
            step.backward(cross_entropy(model(images), labels))
