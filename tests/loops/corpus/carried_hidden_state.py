"""Truncated back-propagation through time: the hidden state of a batch goes on in the next one."""
# outcome: trains, or refused: hidden

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare

torch.manual_seed(1)
chance = torch.Generator().manual_seed(0)
series = torch.randn(40, 6, 5, generator=chance).cumsum(1)
model = nn.ModuleDict({"rnn": nn.GRU(5, 8, batch_first=True), "out": nn.Linear(8, 5)})
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(series), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    hidden = None
    for (batch,) in loader:
        outputs, hidden = model["rnn"](batch[:, :-1], hidden)
        hidden = hidden.detach()
        optimizer.zero_grad()
        nn.functional.mse_loss(model["out"](outputs), batch[:, 1:]).backward()
        optimizer.step()
        pace()
finish(model)
