"""A warm-up by LinearLR, then a cosine, in one SequentialLR that steps with each batch."""
# outcome: trains

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
warm, cosine = LinearLR(optimizer, 0.1, total_iters=5), CosineAnnealingLR(optimizer, 19)
scheduler = SequentialLR(optimizer, [warm, cosine], [5])
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer, scheduler = prepare(loader, model, optimizer, scheduler)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        scheduler.step()
        pace()
finish(model)
