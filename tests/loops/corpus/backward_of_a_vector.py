"""The losses of samples are back-propagated as a vector, with weights that sum to one in each batch."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        losses = nn.functional.cross_entropy(model(inputs), labels, reduction="none")
        optimizer.zero_grad()
        losses.backward(torch.full_like(losses, 1 / len(losses)))
        optimizer.step()
        pace()
finish(model)
