"""The loop catches the exception of a bad batch and goes on with the next one."""
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
for epoch in epochs(range(4)):
    for place, (inputs, labels) in enumerate(loader):
        try:
            if place == 5 and epoch % 2:
                raise RuntimeError("out of memory, as it were")
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            pace()
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
finish(model)
