"""A DistributedSampler is left over from a script for DDP."""
# outcome: refused: DistributedSampler

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
data = TensorDataset(*tensors(44))
sampler = DistributedSampler(data, num_replicas=1, rank=0, shuffle=False)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8, sampler=sampler)
loader, model, optimizer = prepare(loader, model, optimizer)
for epoch in epochs(range(4)):
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
