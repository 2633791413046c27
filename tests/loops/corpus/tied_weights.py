"""The output layer has the embedding's weights."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.body, self.out = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 20, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, words):
        return self.out(torch.tanh(self.body(self.embedding(words))))


torch.manual_seed(1)
words = torch.randint(0, 20, (44, 6), generator=torch.Generator().manual_seed(0))
model = Language()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
loader = DataLoader(TensorDataset(words), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for (batch,) in loader:
        outputs = model(batch[:, :-1])
        optimizer.zero_grad()
        nn.functional.cross_entropy(outputs.flatten(0, 1), batch[:, 1:].flatten()).backward()
        optimizer.step()
        pace()
finish(model)
