"""A SubsetRandomSampler with a generator of its own leaves the held-out samples out."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
sampler = SubsetRandomSampler(range(0, 60, 2), generator=torch.Generator().manual_seed(4))
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(60)), batch_size=8, sampler=sampler)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(5)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
