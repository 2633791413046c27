"""Shuffled samples, and epochs by a plain range."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from twin import finish, ordered, pace, prepare, tensors

torch.manual_seed(1)
data = TensorDataset(*tensors(50))
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(data, batch_size=8, sampler=ordered(RandomSampler(data)))
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in range(4):
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace()
finish(model)
