"""Pretraining as an autoencoder, then a classifier: two loops over epochs."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
body, decoder, head = nn.Sequential(nn.Linear(6, 8), nn.Tanh()), nn.Linear(8, 6), nn.Linear(8, 2)
model = nn.ModuleList([body, decoder, head])
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(2)):
    for inputs, _labels in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(decoder(body(inputs)), inputs).backward()
        optimizer.step()
        pace()
for _epoch in epochs(range(3)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(head(body(inputs)), labels).backward()
        optimizer.step()
        pace()
finish(model)
