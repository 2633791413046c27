"""A memory bank in a buffer that is empty at first and grows to 64 rows."""
# outcome: differs, or refused: buffer

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class WithMemory(nn.Module):
    def __init__(self, most=64):
        super().__init__()
        self.body, self.head, self.most = nn.Linear(6, 8), nn.Linear(16, 2), most
        self.register_buffer("bank", torch.empty(0, 8))

    def forward(self, inputs):
        features = torch.tanh(self.body(inputs))
        near = torch.zeros_like(features)
        if len(self.bank):
            near = self.bank[torch.cdist(features, self.bank).argmin(1)]
        if self.training:
            self.bank = torch.cat([self.bank, features.detach()])[-self.most :]
        return self.head(torch.cat([features, near], 1))


torch.manual_seed(1)
model = WithMemory()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(40)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(5)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
