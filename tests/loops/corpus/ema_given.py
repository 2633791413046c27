"""An average of the weights by hand, in a copy of the model that is given."""
# outcome: trains

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
average = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, average, optimizer = prepare(loader, model, average.requires_grad_(False), optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
            mean.data.mul_(0.9).add_(weight.data, alpha=0.1)
        pace()
finish(model, average)
