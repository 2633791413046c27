"""A batch sampler of the script's own: batches of different sizes."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Uneven(Sampler):
    def __len__(self):
        return 6

    def __iter__(self):
        first = 0
        for size in (4, 6, 8, 8, 10, 8):
            yield list(range(first, first + size))
            first += size


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(44)), batch_sampler=Uneven())
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
