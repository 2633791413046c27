"""A generator of the script's own shuffles the samples: the epochs go on in its sequence."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(*tensors(50))
loader = DataLoader(data, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(5))
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace()
finish(model)
