"""Semi-supervised: the unlabelled batches go on over the epochs, shuffled by a generator, and are drawn by next()."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors, weigh


def forever(batches):
    while True:
        yield from batches


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(40)), batch_size=8)
generator = torch.Generator().manual_seed(3)
more = DataLoader(TensorDataset(tensors(70, seed=1)[0]), batch_size=24, shuffle=True, generator=generator)
loader, more, model, optimizer = prepare(loader, more, model, optimizer)
unlabelled = forever(more)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        (free,) = next(unlabelled)
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
