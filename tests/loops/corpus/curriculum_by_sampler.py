"""A curriculum: the sampler yields more samples in each epoch, the easy ones first."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class FromEasyToHard(Sampler):
    def __init__(self, hardness):
        self.order, self.epoch = hardness.argsort().tolist(), 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return min(len(self.order), 20 + 10 * self.epoch)

    def __iter__(self):
        return iter(self.order[: len(self)])


torch.manual_seed(1)
inputs, labels = tensors(50)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = FromEasyToHard(-(inputs[:, 0] + inputs[:, 1]).abs())
loader = DataLoader(TensorDataset(inputs, labels), batch_size=8, sampler=sampler)
loader, model, optimizer = prepare(loader, model, optimizer)
for epoch in epochs(range(5)):
    sampler.set_epoch(epoch)
    for batch, wanted in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), wanted).backward()
        optimizer.step()
        pace()
finish(model)
