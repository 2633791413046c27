"""Each batch is compared with all of a second, smaller loader."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(36)), batch_size=8)
anchors = DataLoader(TensorDataset(*tensors(12, seed=5)), batch_size=6)
loader, anchors, model, optimizer = prepare(loader, anchors, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        for others, wanted in anchors:
            loss = loss + 0.2 * nn.functional.cross_entropy(model(others), wanted)
        loss.backward()
        optimizer.step()
        pace()
finish(model)
