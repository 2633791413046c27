"""ReduceLROnPlateau follows the loss on held-out data, which each process computes for itself."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
loader = DataLoader(TensorDataset(*tensors(40)), batch_size=8)
held_out = DataLoader(TensorDataset(*tensors(30, seed=5)), batch_size=10)
loader, held_out, model, optimizer, scheduler = prepare(loader, held_out, model, optimizer, scheduler)
for _epoch in epochs(range(6)):
    model.train()
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
    model.eval()
    with torch.no_grad():
        losses = [nn.functional.cross_entropy(model(inputs), labels) for inputs, labels in held_out]
    scheduler.step(torch.stack(losses).mean())
finish(model)
