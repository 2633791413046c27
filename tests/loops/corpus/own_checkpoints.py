"""The first process writes the best weights itself, after each epoch."""
# outcome: trains

import os
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, is_first, pace, prepare, tensors

torch.manual_seed(1)
folder = Path(os.environ["RESULT_DIR"])
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
held_out = tensors(30, seed=5)
loader, model, optimizer = prepare(loader, model, optimizer)
best = 0.0
for epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
    if is_first():
        with torch.no_grad():
            accuracy = (model(held_out[0]).argmax(1) == held_out[1]).float().mean().item()
        if accuracy > best:
            best = accuracy
            torch.save({"epoch": epoch, "model": model.state_dict()}, folder / "best.pt")
finish(model)
