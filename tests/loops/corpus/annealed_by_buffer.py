"""The model counts its training steps in a buffer, and anneals by it."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Annealed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 2)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, inputs):
        if self.training:
            self.steps += 1
        return self.layer(inputs) * (1 + 0.05 * self.steps)


torch.manual_seed(1)
model = Annealed()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
