"""A DataLoader without batches yields single samples: batch_size=None."""
# outcome: trains, or refused: batch

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(TensorDataset(*tensors(12)), batch_size=None)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(2)):
    for inputs, label in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), label).backward()
        optimizer.step()
        pace()
finish(model)
