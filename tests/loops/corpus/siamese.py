"""A siamese net on given pairs of samples, with a contrastive loss."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from twin import epochs, finish, pace, prepare, tensors


class Pairs(Dataset):
    def __init__(self):
        self.inputs, self.labels = tensors(60)

    def __len__(self):
        return 30

    def __getitem__(self, index):
        first, second = 2 * index, 2 * index + 1
        alike = float(self.labels[first] == self.labels[second])
        return self.inputs[first], self.inputs[second], alike


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(Pairs(), batch_size=6)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(5)):
    for first, second, alike in loader:
        distance = nn.functional.pairwise_distance(model(first), model(second))
        loss = (alike * distance.square() + (1 - alike) * (1.5 - distance).clamp(min=0).square()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace()
finish(model)
