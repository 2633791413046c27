"""A RandomSampler with replacement draws fewer samples than there are."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from twin import epochs, finish, ordered, pace, prepare, tensors

torch.manual_seed(1)
data = TensorDataset(*tensors(60))
sampler = RandomSampler(data, replacement=True, num_samples=36)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8, sampler=ordered(sampler), drop_last=True)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(5)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
