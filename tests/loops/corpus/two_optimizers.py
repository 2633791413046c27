"""One model, two optimizers: SGD for the embedding, Adam for the rest."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare

torch.manual_seed(1)
words = torch.randint(0, 30, (44, 5), generator=torch.Generator().manual_seed(0))
model = nn.Sequential(nn.Embedding(30, 8), nn.Flatten(), nn.Linear(40, 2))
slow = torch.optim.SGD(model[0].parameters(), lr=0.5)
fast = torch.optim.Adam(model[2].parameters(), lr=0.01)
loader = DataLoader(TensorDataset(words, (words.sum(1) > 70).long()), batch_size=8)
loader, model, slow, fast = prepare(loader, model, slow, fast)
for _epoch in epochs(range(4)):
    for batch, labels in loader:
        model.zero_grad()
        nn.functional.cross_entropy(model(batch), labels).backward()
        slow.step()
        fast.step()
        pace()
finish(model)
