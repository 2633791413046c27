"""SparseAdam over an embedding with sparse gradients."""
# outcome: refused: SparseAdam

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare

torch.manual_seed(1)
words = torch.randint(0, 30, (44, 5), generator=torch.Generator().manual_seed(0))
model = nn.Sequential(nn.EmbeddingBag(30, 2, sparse=True))
optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.05)
loader = DataLoader(TensorDataset(words, (words.sum(1) > 70).long()), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(3)):
    for batch, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), labels).backward()
        optimizer.step()
        pace()
finish(model)
