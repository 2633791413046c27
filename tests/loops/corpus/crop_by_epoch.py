"""The collate function crops sequences to a length that grows with the epoch."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from twin import epochs, finish, pace, prepare, tensors


class Sequences(Dataset):
    length = 2

    def __init__(self):
        self.inputs, self.labels = tensors(44, 12)

    def __len__(self):
        return 44

    def __getitem__(self, index):
        return self.inputs[index, : self.length], self.labels[index]


torch.manual_seed(1)
data = Sequences()
model = nn.Sequential(nn.Conv1d(1, 8, 2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
loader = DataLoader(data, batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for epoch in epochs(range(5)):
    data.length = 4 + 2 * epoch
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs.unsqueeze(1)), labels).backward()
        optimizer.step()
        pace()
finish(model)
