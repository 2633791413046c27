"""ReduceLROnPlateau follows the mean loss over all samples and processes; early stopping does, too."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import add_up, epochs, finish, pace, prepare, tensors, totals

torch.manual_seed(1)
inputs, _ = tensors(42)
labels = torch.randint(0, 2, (42,), generator=torch.Generator().manual_seed(3))
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=8)
loader, model, optimizer, scheduler = prepare(loader, model, optimizer, scheduler)
for _epoch in epochs(range(8)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        add_up(loss=loss.item() * len(labels), samples=len(labels))
        pace()
    sums = totals()
    scheduler.step(sums["loss"] / sums["samples"])
finish(model)
