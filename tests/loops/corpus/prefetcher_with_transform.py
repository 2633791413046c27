"""A prefetcher is one batch ahead and makes other tensors of it: that is seen behind the pass only."""
# outcome: refused: outside of a loop over the prepared loader|is at another batch

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


def prefetched(loader):
    following = None
    for inputs, labels in loader:
        if following is not None:
            yield following
        following = inputs / 2, labels
    if following is not None:
        yield following


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in prefetched(loader):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
