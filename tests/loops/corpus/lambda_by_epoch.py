"""LambdaLR by epochs, with warm-up."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: min(1.0, (epoch + 1) / 3) * 0.9**epoch)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer, scheduler = prepare(loader, model, optimizer, scheduler)
for epoch in epochs(range(5)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
    scheduler.step()
    print(f"epoch {epoch}: rate {scheduler.get_last_lr()[0]:.4f}", flush=True)
finish(model)
