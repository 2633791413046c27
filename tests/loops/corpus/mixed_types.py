"""A layer in double precision behind one in single precision, and a scale of one element without dimensions."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.low, self.high = nn.Linear(6, 16), nn.Linear(16, 2).double()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, inputs):
        return self.high((torch.tanh(self.low(inputs)) * self.scale).double())


torch.manual_seed(1)
model = Mixed()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
