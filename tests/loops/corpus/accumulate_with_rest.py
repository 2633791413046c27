"""Gradients of four batches are accumulated, and what is left at the end of an epoch is stepped."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(5)):
    for place, (inputs, labels) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(inputs), labels) / 4
        loss.backward()
        if (place + 1) % 4 == 0 or place + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
        pace()
finish(model)
