"""Fine-tuning: the backbone becomes another parameter group in the third epoch."""
# outcome: trains, or refused: parameters

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
backbone, head = nn.Sequential(nn.Linear(6, 16), nn.ReLU()), nn.Linear(16, 2)
model = nn.Sequential(backbone, head)
backbone.requires_grad_(False)
optimizer = torch.optim.Adam(head.parameters(), lr=0.02)
loader = DataLoader(TensorDataset(*tensors(40)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for epoch in epochs(range(5)):
    if epoch == 2:
        backbone.requires_grad_(True)
        optimizer.add_param_group({"params": backbone.parameters(), "lr": 0.005})
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
