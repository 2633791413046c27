"""Early stopping by an object of a class of the script's, which keeps the best loss and how often it has not fallen."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Stopper:
    def __init__(self, patience):
        self.patience, self.best, self.waited, self.is_over = patience, None, 0, False

    def see(self, loss):
        if self.best is None or loss < self.best:
            self.best, self.waited = loss, 0
        else:
            self.waited += 1
        self.is_over = self.waited >= self.patience


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1.5)
loader = DataLoader(TensorDataset(*tensors(40)), batch_size=8)
held_out = tensors(30, seed=5)
loader, model, optimizer = prepare(loader, model, optimizer)
stopper, learned = Stopper(2), 0
for _epoch in epochs(range(30)):
    model.train()
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
    learned += 40
    model.eval()
    with torch.no_grad():
        stopper.see(nn.functional.cross_entropy(model(held_out[0]), held_out[1]).item())
    if stopper.is_over:
        break
finish(model, learned=learned)
