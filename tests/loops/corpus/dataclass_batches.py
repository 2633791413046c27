"""Batches are frozen dataclasses."""
# outcome: trains

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate
from twin import epochs, finish, pace, prepare, tensors


@dataclass(frozen=True)
class Batch:
    inputs: torch.Tensor
    labels: torch.Tensor
    names: list


def together(samples):
    inputs, labels = default_collate(samples)
    return Batch(inputs, labels, [f"sample of class {label}" for label in labels.tolist()])


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8, collate_fn=together)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for batch in loader:
        assert len(batch.names) == len(batch.labels)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch.inputs), batch.labels).backward()
        optimizer.step()
        pace()
finish(model)
