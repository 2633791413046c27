"""Stochastic weight averaging from the third epoch on, with its schedule."""
# outcome: trains

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
average = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
constant = SWALR(optimizer, swa_lr=0.05, anneal_epochs=1)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer, average, cosine, constant = prepare(loader, model, optimizer, average, cosine, constant)
for epoch in epochs(range(6)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
    if epoch >= 2:
        average.update_parameters(model)
        constant.step()
    else:
        cosine.step()
finish(model, average)
