"""Two schedules of one optimizer, chained, each stepped after an epoch."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
constant = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.3, total_iters=2)
exponential = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer, constant, exponential = prepare(loader, model, optimizer, constant, exponential)
for _epoch in epochs(range(5)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
    constant.step()
    exponential.step()
finish(model)
