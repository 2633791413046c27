"""The weights go back to a copy of the first epoch's, and the rate to its beginning, in the fourth epoch."""
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
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=3)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
at_first = copy.deepcopy(model.state_dict())
loader, model, optimizer, scheduler = prepare(loader, model, optimizer, scheduler)
for epoch in epochs(range(6)):
    if epoch == 3:
        model.load_state_dict(at_first)
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
    scheduler.step()
finish(model)
