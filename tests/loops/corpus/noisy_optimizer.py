"""Langevin dynamics in an optimizer of the script's own, whose steps draw noise."""
# outcome: differs

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Langevin(torch.optim.SGD):
    @torch.no_grad()
    def step(self):
        super().step()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(torch.randn_like(parameter), alpha=0.01)


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.1), nn.Tanh(), nn.Linear(16, 2))
optimizer = Langevin(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
