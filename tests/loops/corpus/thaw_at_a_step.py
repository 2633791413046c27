"""Fine-tuning in phases: a counter of steps says when the backbone thaws, and a group is added for it."""
# outcome: trains, or refused: follow from the number of the epoch

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
backbone, head = nn.Sequential(nn.Linear(6, 16), nn.Tanh()), nn.Linear(16, 2)
model = nn.Sequential(backbone, head)
backbone.requires_grad_(False)
optimizer = torch.optim.SGD(head.parameters(), lr=0.2, momentum=0.9)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
step = 0
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        if step == 8:
            backbone.requires_grad_(True)
            optimizer.add_param_group({"params": backbone.parameters(), "lr": 0.05})
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        step += 1
        pace()
finish(model)
