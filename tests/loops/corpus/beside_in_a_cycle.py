"""The unlabelled loader is repeated by itertools.cycle, which keeps what a joiner has not seen."""
# outcome: refused: itertools.cycle

from itertools import cycle

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors, weigh

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(40)), batch_size=8)
more = DataLoader(TensorDataset(tensors(120, seed=1)[0]), batch_size=24)
loader, more, model, optimizer = prepare(loader, more, model, optimizer)
for _epoch in epochs(range(4)):
    for (inputs, labels), (free,) in zip(loader, cycle(more), strict=False):
        optimizer.zero_grad()
        with torch.no_grad():
            guess = model(free).argmax(1)
        consistency = nn.functional.cross_entropy(model(free + 0.1), guess)
        loss = nn.functional.cross_entropy(model(inputs), labels) + 0.3 * consistency
        weigh(len(labels))  # the consistency is a mean over something else
        loss.backward()
        optimizer.step()
        pace()
finish(model)
