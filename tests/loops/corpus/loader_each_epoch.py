"""A DataLoader is made anew in each epoch, over more and more samples."""
# outcome: trains, or refused: loader

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
data = TensorDataset(*tensors(60))
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for epoch in epochs(range(4)):
    loader = DataLoader(Subset(data, range(30 + 10 * epoch)), batch_size=8)
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
