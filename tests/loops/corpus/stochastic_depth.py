"""Stochastic depth: a residual block is left out at random, so that some parameters get no gradient."""
# outcome: differs: random numbers in a step

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, inputs):
        if self.training and torch.rand(()) < 0.4:
            return inputs
        return inputs + torch.tanh(self.inner(inputs))


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 8), *(Block() for _ in range(4)), nn.Linear(8, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
