"""ReduceLROnPlateau follows the epoch's mean of loss.item(), as most loops compute it."""
# outcome: trains, or refused: learning rates

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
inputs, _ = tensors(42)
labels = torch.randint(0, 2, (42,), generator=torch.Generator().manual_seed(3))
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=8)
loader, model, optimizer, scheduler = prepare(loader, model, optimizer, scheduler)
for _epoch in epochs(range(8)):
    running = 0.0
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        running += loss.item()
        pace()
    scheduler.step(running / len(loader))
finish(model)
