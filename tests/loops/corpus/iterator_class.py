"""A class is its own iterator over steps, and prepares in its constructor."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import finish, pace, prepare, tensors


class Steps:
    def __init__(self, count):
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        loader = DataLoader(TensorDataset(*tensors(40)), batch_size=8)
        self.loader, self.model, self.optimizer = prepare(loader, self.model, self.optimizer)
        self.left, self.batches = count, iter(self.loader)

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.loader)
            batch = next(self.batches)
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(batch[0]), batch[1]).backward()
        self.optimizer.step()
        pace()
        return self.left


steps = Steps(23)
for left in steps:
    if left % 10 == 0:
        print(f"{left} steps are left", flush=True)
finish(steps.model)
