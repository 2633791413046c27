"""Layers whose activations are computed again in the backward."""
# outcome: trains

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for epoch in epochs(range(4)):
    for inputs, labels in loader:
        hidden = checkpoint(model[:2], inputs, use_reentrant=False)
        hidden = checkpoint(model[2:4], hidden, use_reentrant=epoch % 2 == 1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model[4](hidden), labels).backward()
        optimizer.step()
        pace()
finish(model)
