"""Three nets are trained at once, and the loss is the mean of theirs."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
nets = nn.ModuleList(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)) for _ in range(3))
optimizer = torch.optim.NAdam(nets.parameters(), lr=0.02)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, nets, optimizer = prepare(loader, nets, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        losses = [nn.functional.cross_entropy(net(inputs), labels) for net in nets]
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
        pace()
finish(nets)
