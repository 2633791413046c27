"""A sampler of Python's random numbers draws as many samples of each class."""
# outcome: trains

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset
from twin import epochs, finish, ordered, pace, prepare, tensors


class Balanced(Sampler):
    def __init__(self, labels, each):
        self.of_class = [(labels == label).nonzero().flatten().tolist() for label in (0, 1)]
        self.each = each

    def __len__(self):
        return 2 * self.each

    def __iter__(self):
        drawn = [random.choice(members) for members in self.of_class for _ in range(self.each)]
        random.shuffle(drawn)
        return iter(drawn)


torch.manual_seed(1)
inputs, labels = tensors(50)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=8, sampler=ordered(Balanced(labels, 21)))
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for batch, wanted in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), wanted).backward()
        optimizer.step()
        pace()
finish(model)
