"""A search for a learning rate trains a copy before prepare."""
# outcome: trains

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
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
losses = {}
for rate in (0.01, 0.1, 0.3):
    tried = copy.deepcopy(model)
    search = torch.optim.SGD(tried.parameters(), lr=rate)
    for inputs, labels in loader:
        search.zero_grad()
        loss = nn.functional.cross_entropy(tried(inputs), labels)
        loss.backward()
        search.step()
    losses[rate] = loss.item()
optimizer = torch.optim.SGD(model.parameters(), lr=min(losses, key=losses.get))
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
