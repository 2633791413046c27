"""The dataset grows: each epoch has more samples than the one before."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from twin import epochs, finish, pace, prepare, tensors


class Growing(Dataset):
    def __init__(self):
        self.inputs, self.labels = tensors(60)
        self.count = 24

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.inputs[index], self.labels[index]


torch.manual_seed(1)
data = Growing()
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for epoch in epochs(range(5)):
    data.count = 24 + 9 * epoch
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
