"""The weights of the epoch with the best validation are copied, and put back at the end."""
# outcome: trains

import copy
import math

import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    TensorDataset,
)
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1.5)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
held_out = tensors(40, seed=5)
loader, model, optimizer = prepare(loader, model, optimizer)
best, best_weights = math.inf, None
for _epoch in epochs(range(6)):
    model.train()
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
    model.eval()
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(held_out[0]), held_out[1]).item()
    if loss < best:
        best, best_weights = loss, copy.deepcopy(model.state_dict())
model.load_state_dict(best_weights)
finish(model)
