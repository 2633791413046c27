"""An autoencoder of two models with one optimizer over the parameters of both."""
# outcome: trains

import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
encoder, decoder = nn.Sequential(nn.Linear(6, 3), nn.Tanh()), nn.Linear(3, 6)
optimizer = torch.optim.Adam(itertools.chain(encoder.parameters(), decoder.parameters()), lr=0.02)
loader = DataLoader(TensorDataset(tensors(44)[0]), batch_size=8)
optimizer, decoder, encoder, loader = prepare(optimizer, decoder, encoder, loader)
for _epoch in epochs(range(4)):
    for (inputs,) in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(decoder(encoder(inputs)), inputs).backward()
        optimizer.step()
        pace()
finish(decoder, encoder)
