"""A contrastive loss with negatives from the same batch."""
# outcome: differs: negatives from the same batch

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(tensors(44)[0]), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for (inputs,) in loader:
        first, second = nn.functional.normalize(model(inputs)), nn.functional.normalize(model(inputs + 0.1))
        optimizer.zero_grad()
        nn.functional.cross_entropy(first @ second.T / 0.2, torch.arange(len(inputs))).backward()
        optimizer.step()
        pace()
finish(model)
