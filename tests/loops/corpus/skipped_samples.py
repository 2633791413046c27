"""Damaged samples are None, and the collate function leaves them out."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate
from twin import epochs, finish, pace, prepare, tensors


class Pictures(Dataset):
    def __init__(self):
        self.inputs, self.labels = tensors(60)

    def __len__(self):
        return 60

    def __getitem__(self, index):
        return None if index % 10 in (3, 4) else (self.inputs[index], self.labels[index])


def whole_ones(samples):
    return default_collate([sample for sample in samples if sample is not None])


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(Pictures(), batch_size=4, collate_fn=whole_ones)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(3)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
