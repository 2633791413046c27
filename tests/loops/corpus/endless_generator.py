"""A generator yields batches for ever, and the loop ends after a number of steps."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import finish, pace, prepare, tensors


def for_ever(loader):
    while True:
        yield from loader


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
loader = DataLoader(TensorDataset(*tensors(40)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for step, (inputs, labels) in enumerate(for_ever(loader), start=1):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    pace()
    if step == 23:
        break
finish(model)
