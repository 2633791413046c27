"""Two optimizers of one model take turns by epochs."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
lower = torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9)
upper = torch.optim.Adagrad(model[2].parameters(), lr=0.05)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, lower, upper = prepare(loader, model, lower, upper)
for epoch in epochs(range(4)):
    optimizer = (lower, upper)[epoch % 2]
    for inputs, labels in loader:
        model.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
