"""A sample has no finite loss, and the loop skips its batch."""
# outcome: trains, or refused: at another batch.*leave out the optimizer

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
inputs, labels = tensors(44)
inputs[17] = math.nan
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for batch, wanted in loader:
        loss = nn.functional.cross_entropy(model(batch), wanted)
        if not torch.isfinite(loss):
            print("skipped a batch", flush=True)
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace()
finish(model)
