"""Batches come from itertools.cycle, which keeps those of the first pass."""
# outcome: trains, or refused: outside of a loop over the prepared loader

import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(40)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
batches = itertools.cycle(loader)
for _iteration in range(22):
    inputs, labels = next(batches)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    pace()
finish(model)
