"""A training in which a rank whose file `greedy-<member_id>` is there takes memory until there is none left."""

import os
import time

import torch
from tidepool.torch import Session
from torch import nn

model = nn.Linear(4, 2)
session = Session(model, torch.optim.SGD(model.parameters(), lr=0.1), effective_batch_size=4)
data = torch.utils.data.TensorDataset(torch.ones(64, 4), torch.zeros(64, dtype=torch.long))
taken = []
for _ in session.epochs(1_000_000):
    for step in session.steps(data):
        for inputs, labels in step:
            while (session.folder / f"greedy-{os.environ['TIDEPOOL_MEMBER_ID']}").exists():
                taken.append(bytearray(b"x") * (32 << 20))
            step.backward(nn.functional.cross_entropy(model(inputs), labels))
        time.sleep(0.02)
