"""A sampler with state of its own: each pass begins where the one before has ended."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class RoundRobin(Sampler):
    def __init__(self, size, count):
        self.size, self.count, self.begin = size, count, 0

    def __len__(self):
        return self.count

    def __iter__(self):
        begun, self.begin = self.begin, (self.begin + self.count) % self.size
        return iter([(begun + place) % self.size for place in range(self.count)])

    def state_dict(self):
        return {"begin": self.begin}

    def load_state_dict(self, state):
        self.begin = state["begin"]


torch.manual_seed(1)
sampler = RoundRobin(60, 34)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(60)), batch_size=8, sampler=sampler)
loader, model, optimizer, sampler = prepare(loader, model, optimizer, sampler)
for _epoch in epochs(range(5)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
