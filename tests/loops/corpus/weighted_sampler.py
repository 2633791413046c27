"""A WeightedRandomSampler draws rare classes more often."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler
from twin import epochs, finish, ordered, pace, prepare, tensors

torch.manual_seed(1)
inputs, labels = tensors(50)
weights = torch.where(labels == 1, 3.0, 1.0)
sampler = WeightedRandomSampler(weights, 44)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=8, sampler=ordered(sampler))
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for batch, wanted in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), wanted).backward()
        optimizer.step()
        pace()
finish(model)
