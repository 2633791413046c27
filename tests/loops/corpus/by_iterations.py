"""A number of iterations, not of epochs: next() on an iterator that begins anew when it is used up."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
batches = iter(loader)
for _iteration in range(27):
    try:
        inputs, labels = next(batches)
    except StopIteration:
        batches = iter(loader)
        inputs, labels = next(batches)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    pace()
finish(model)
