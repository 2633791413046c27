"""Gradients of two batches are accumulated."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(*tensors(48)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    optimizer.zero_grad()
    for place, (inputs, labels) in enumerate(loader):
        (nn.functional.cross_entropy(model(inputs), labels) / 2).backward()
        if place % 2 == 1:
            optimizer.step()
            optimizer.zero_grad()
        pace()
finish(model)
