"""Reptile: a copy trains on the batch, and the difference to it is the gradient of the model."""
# outcome: trains, or refused: no loss.backward

import copy

import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    TensorDataset,
)
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        fast = copy.deepcopy(model)
        inner = torch.optim.SGD(fast.parameters(), lr=0.1)
        for _ in range(3):
            inner.zero_grad()
            nn.functional.cross_entropy(fast(inputs), labels).backward()
            inner.step()
        for parameter, after in zip(model.parameters(), fast.parameters(), strict=True):
            parameter.grad = (parameter - after).detach()
        optimizer.step()
        pace()
finish(model)
