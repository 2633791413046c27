"""A mean over the tokens that a mask leaves."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare

torch.manual_seed(1)
chance = torch.Generator().manual_seed(0)
words, lengths = torch.randint(0, 20, (44, 7), generator=chance), torch.randint(1, 7, (44,), generator=chance)
mask = torch.arange(6) < lengths[:, None]
model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
loader = DataLoader(TensorDataset(words, mask), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for batch, kept in loader:
        outputs = model(batch[:, :-1])
        losses = nn.functional.cross_entropy(outputs.transpose(1, 2), batch[:, 1:], reduction="none")
        optimizer.zero_grad()
        ((losses * kept).sum() / kept.sum()).backward()
        optimizer.step()
        pace()
finish(model)
