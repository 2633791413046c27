"""Low-rank adapters beside frozen weights."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Adapted(nn.Module):
    def __init__(self, layer, rank=2):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(0.1 * torch.randn(rank, layer.in_features))
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, inputs):
        return self.layer(inputs) + inputs @ self.down.T @ self.up.T


torch.manual_seed(1)
model = nn.Sequential(Adapted(nn.Linear(6, 16)), nn.Tanh(), Adapted(nn.Linear(16, 2)))
optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.02, weight_decay=0.1)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
