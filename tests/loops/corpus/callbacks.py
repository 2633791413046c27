"""A trainer with callbacks hides the loop."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, is_first, pace, prepare, tensors


class Trainer:
    def __init__(self, model, optimizer, loader, callbacks=()):
        self.model, self.optimizer, self.loader, self.callbacks = model, optimizer, loader, callbacks

    def call(self, name, **values):
        for callback in self.callbacks:
            getattr(callback, name, lambda trainer, **_values: None)(self, **values)

    def fit(self, count):
        for epoch in epochs(range(count)):
            self.call("epoch_begins", epoch=epoch)
            for place, batch in enumerate(self.loader):
                self.call("batch_ends", place=place, loss=self.train(*batch))
                pace()
            self.call("epoch_ends", epoch=epoch)

    def train(self, inputs, labels):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        loss.backward()
        self.call("gradients_are_there")
        self.optimizer.step()
        return loss.item()


class Clip:
    def gradients_are_there(self, trainer):
        nn.utils.clip_grad_norm_(trainer.model.parameters(), 0.3)


class Log:
    def batch_ends(self, _trainer, place, loss):
        if place == 0 and is_first():
            print(f"loss {loss:.4f}", flush=True)


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
Trainer(model, optimizer, loader, [Clip(), Log()]).fit(4)
finish(model)
