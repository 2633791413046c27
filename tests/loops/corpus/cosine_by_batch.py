"""A cosine schedule that steps with each batch, and clipping of the norm."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4 * len(loader))
loader, model, optimizer, scheduler = prepare(loader, model, optimizer, scheduler)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        pace()
finish(model)
