"""Two folds: each epoch trains on one and then on the other, each with a DataLoader and an order of its own."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset
from twin import finish, pace, prepare, tensors

torch.manual_seed(1)
data = TensorDataset(*tensors(50))
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
folds = [Subset(data, range(26)), Subset(data, range(26, 50))]
first, second = (
    DataLoader(fold, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(4)) for fold in folds
)
first, model, optimizer = prepare(first, model, optimizer)
second = prepare(second)
for _epoch in range(3):
    for loader in (first, second):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pace()
finish(model)
