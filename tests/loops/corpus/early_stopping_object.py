"""Early stopping by an object with a state_dict, which is given to prepare."""
# outcome: trains

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class EarlyStopping:
    def __init__(self, patience=2):
        self.patience, self.best, self.waited = patience, math.inf, 0

    def stops(self, loss):
        self.waited = 0 if loss < self.best else self.waited + 1
        self.best = min(self.best, loss)
        return self.waited >= self.patience

    def state_dict(self):
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state):
        self.best, self.waited = state["best"], state["waited"]


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1.5)
stopping = EarlyStopping()
loader = DataLoader(TensorDataset(*tensors(40)), batch_size=8)
held_out = tensors(30, seed=5)
loader, model, optimizer, stopping = prepare(loader, model, optimizer, stopping)
for _epoch in epochs(range(30)):
    model.train()
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
    model.eval()
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(held_out[0]), held_out[1]).item()
    if stopping.stops(loss):
        break
finish(model)
