"""Reports thousands of metrics in each step, such as the norm of each layer: a record is longer than 64 KiB."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, report, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader, model, optimizer = prepare(DataLoader(TensorDataset(*tensors(40)), batch_size=8), model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        report(**{f"task{number}/loss": loss.item() + number for number in range(5000)})
        pace()
finish(model)
