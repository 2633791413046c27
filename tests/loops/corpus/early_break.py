"""An epoch is left by break in its middle."""
# outcome: trains, or refused: at another batch

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
loader = DataLoader(TensorDataset(*tensors(64)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for epoch in epochs(range(5)):
    for place, (inputs, labels) in enumerate(loader):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
        if epoch % 2 and place == len(loader) - 4:
            break
finish(model)
