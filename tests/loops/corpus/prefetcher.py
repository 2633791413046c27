"""A prefetcher is one batch ahead: the next batch is fetched before the present one is computed."""
# outcome: refused: takes a batch before it has computed the one before

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Prefetcher:
    def __init__(self, loader):
        self.batches = iter(loader)
        self.following = next(self.batches, None)

    def __iter__(self):
        while self.following is not None:
            batch, self.following = self.following, next(self.batches, None)
            yield batch


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in Prefetcher(loader):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
