"""CyclicLR by batches, and a weight decay that the loop changes by epochs."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8)
scheduler = torch.optim.lr_scheduler.CyclicLR(optimizer, 0.02, 0.3, step_size_up=4)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer, scheduler = prepare(loader, model, optimizer, scheduler)
for epoch in epochs(range(4)):
    optimizer.param_groups[0]["weight_decay"] = 0.01 * epoch
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        scheduler.step()
        pace()
finish(model)
