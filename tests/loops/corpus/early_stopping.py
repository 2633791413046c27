"""The loop ends when the loss on held-out data has not fallen twice; the counter is a variable of the script's own."""
# outcome: trains

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1.5)
loader = DataLoader(TensorDataset(*tensors(40)), batch_size=8)
held_out = tensors(30, seed=5)
loader, model, optimizer = prepare(loader, model, optimizer)
best, waited = math.inf, 0
for epoch in epochs(range(30)):
    model.train()
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
    model.eval()
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(held_out[0]), held_out[1]).item()
    waited = 0 if loss < best else waited + 1
    best = min(best, loss)
    if waited == 2:
        print(f"stopped after epoch {epoch}", flush=True)
        break
finish(model)
