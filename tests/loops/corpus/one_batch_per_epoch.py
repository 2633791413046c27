"""One batch in an epoch, and a loop variable that is used behind the loop: each join is at the end of an epoch."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(32)), batch_size=32)
loader, model, optimizer = prepare(loader, model, optimizer)
for epoch in epochs(range(16)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        pace()
    print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
finish(model)
