"""Cross-validation: each fold prepares a model of its own."""
# outcome: refused: once

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
data = TensorDataset(*tensors(48))
for fold in range(3):
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = Subset(data, [index for index in range(48) if index % 3 != fold])
    loader = DataLoader(kept, batch_size=8)
    loader, model, optimizer = prepare(loader, model, optimizer)
    for _epoch in epochs(range(2)):
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            pace()
finish(model)
