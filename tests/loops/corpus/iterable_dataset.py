"""A dataset that is a stream."""
# outcome: refused: IterableDataset

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from twin import epochs, finish, pace, prepare, tensors


class Stream(IterableDataset):
    def __iter__(self):
        return zip(*tensors(44), strict=True)


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Stream(), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
