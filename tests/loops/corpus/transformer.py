"""A small transformer over sequences, without dropout."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare

torch.manual_seed(1)
words = torch.randint(0, 12, (40, 6), generator=torch.Generator().manual_seed(0))
layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
model = nn.Sequential(
    nn.Embedding(12, 8), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 12)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(words), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for (batch,) in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flip(1).flatten()).backward()
        optimizer.step()
        pace()
finish(model)
