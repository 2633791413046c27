"""Zip ends an epoch early, after it has taken one batch that is not used."""
# outcome: trains, or refused: at another batch

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(64)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(5)):
    for (inputs, labels), _place in zip(loader, range(5), strict=False):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
