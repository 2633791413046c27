"""Fine-tuning: one optimizer has all parameters, and the backbone is thawed in the third epoch."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.ModuleDict({"backbone": nn.Linear(6, 16), "head": nn.Linear(16, 2)})
for parameter in model["backbone"].parameters():
    parameter.requires_grad = False
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(*tensors(40)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for epoch in epochs(range(5)):
    if epoch == 2:
        for parameter in model["backbone"].parameters():
            parameter.requires_grad = True
    for inputs, labels in loader:
        optimizer.zero_grad()
        outputs = model["head"](torch.relu(model["backbone"](inputs)))
        nn.functional.cross_entropy(outputs, labels).backward()
        optimizer.step()
        pace()
finish(model)
