"""A trainer's attribute counts its steps, and a noise that it adds to the inputs decays by them."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Trainer:
    def __init__(self, model, optimizer, loader):
        self.model, self.optimizer, self.loader = model, optimizer, loader
        self.global_step = 0
        self.state = {"seen": 100}

    def fit(self, count):
        for _epoch in epochs(range(count)):
            for inputs, labels in self.loader:
                weight = 1 / (1 + self.global_step) + 1 / self.state["seen"]
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model(inputs), labels, label_smoothing=weight / 4)
                loss.backward()
                self.optimizer.step()
                self.global_step += 1
                self.state["seen"] += 1
                pace()


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
Trainer(model, optimizer, loader).fit(4)
finish(model)
