"""Two loaders are trained on in turn, and both are given to prepare."""
# outcome: trains, or refused: loader

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first = DataLoader(TensorDataset(*tensors(28)), batch_size=8)
second = DataLoader(TensorDataset(*tensors(20, seed=5)), batch_size=4)
first, second, model, optimizer = prepare(first, second, model, optimizer)
for _epoch in epochs(range(4)):
    for loader in (first, second):
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            pace()
finish(model)
