"""MAML: an inner step on the support set, differentiated by the outer loss on the query set."""
# outcome: trains

import torch
from torch import nn
from torch.func import functional_call
from torch.utils.data import DataLoader, Dataset
from twin import epochs, finish, pace, prepare


class Tasks(Dataset):
    def __init__(self, count=32):
        chance = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(count, 10, 3, generator=chance)
        self.slopes = torch.randn(count, 3, 1, generator=chance)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        targets = self.inputs[index] @ self.slopes[index]
        return self.inputs[index, :5], targets[:5], self.inputs[index, 5:], targets[5:]


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(Tasks(), batch_size=4)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(3)):
    for tasks in loader:
        losses = []
        for inputs, targets, query, wanted in zip(*tasks, strict=True):
            weights = dict(model.named_parameters())
            inner = nn.functional.mse_loss(functional_call(model, weights, (inputs,)), targets)
            slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
            adapted = {name: one - 0.1 * slope for (name, one), slope in zip(weights.items(), slopes, strict=True)}
            losses.append(nn.functional.mse_loss(functional_call(model, adapted, (query,)), wanted))
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
        pace()
finish(model)
