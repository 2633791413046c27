"""Batches are objects of the script's own with a method `to`, as those of tokenizers and graph libraries."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate
from twin import epochs, finish, pace, prepare, tensors


class Encoding(dict):
    def to(self, device):
        return Encoding({name: value.to(device) for name, value in self.items()})

    def __getattr__(self, name):
        return self[name]


def together(samples):
    inputs, labels = default_collate(samples)
    return Encoding(inputs=inputs, labels=labels)


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8, collate_fn=together)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for batch in loader:
        batch = batch.to("cpu")
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch.inputs), batch.labels).backward()
        optimizer.step()
        pace()
finish(model)
