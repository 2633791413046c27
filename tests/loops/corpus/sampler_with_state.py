"""A sampler that shuffles one list again and again, and counts its epochs, which leaves out samples."""
# outcome: trains

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Curriculum(Sampler):
    def __init__(self, count):
        self.indices, self.dice, self.epoch = list(range(count)), random.Random(5), 0

    def __len__(self):
        return len(self.indices)

    def __iter__(self):
        self.epoch += 1
        self.dice.shuffle(self.indices)
        return iter(self.indices[: 20 + 7 * self.epoch])


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(*tensors(50))
loader = DataLoader(data, batch_size=8, sampler=Curriculum(50))
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace()
finish(model)
