"""Gradients of three batches are accumulated, and those that are left at the end of an epoch stay for the next one."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
loader = DataLoader(TensorDataset(*tensors(40)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for place, (inputs, labels) in enumerate(loader, start=1):
        nn.functional.cross_entropy(model(inputs), labels).backward()
        if place % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
        pace()
finish(model)
