"""A curriculum: each epoch makes a DataLoader of its own, over more samples than the one before."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
data = TensorDataset(*tensors(50))
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
_, model, optimizer = prepare(DataLoader(data, batch_size=8), model, optimizer)
for epoch in epochs(range(4)):
    generator = torch.Generator().manual_seed(epoch)
    part = Subset(data, range(20 + 10 * epoch))
    loader = prepare(DataLoader(part, batch_size=8, shuffle=True, generator=generator))
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace()
finish(model)
