"""Each layer is a parameter group with a rate of its own, halved after each epoch."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 2))
groups = [{"params": layer.parameters(), "lr": 0.1 * 0.7**depth} for depth, layer in enumerate(model[::2])]
optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer, scheduler = prepare(loader, model, optimizer, scheduler)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
    scheduler.step()
finish(model)
