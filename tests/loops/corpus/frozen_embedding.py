"""A frozen embedding under a classifier of bags of words."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare

torch.manual_seed(1)
words = torch.randint(0, 30, (48, 5), generator=torch.Generator().manual_seed(0))
labels = (words.sum(1) > 70).long()
model = nn.Sequential(nn.Embedding.from_pretrained(torch.randn(30, 8)), nn.Flatten(), nn.Linear(40, 2))
optimizer = torch.optim.Adam((one for one in model.parameters() if one.requires_grad), lr=0.02)
loader = DataLoader(TensorDataset(words, labels), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for batch, wanted in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), wanted).backward()
        optimizer.step()
        pace()
finish(model)
