"""The script keeps a running center of the outputs in a buffer, and subtracts it."""
# outcome: differs, or refused: buffers

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
model.register_buffer("center", torch.zeros(4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(tensors(44)[0]), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for (inputs,) in loader:
        outputs = model(inputs)
        target = (outputs.detach() - model.center).mul(2).softmax(1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs + 0.1), target).backward()
        optimizer.step()
        with torch.no_grad():
            model.center.lerp_(outputs.mean(0), 0.1)
        pace()
finish(model)
