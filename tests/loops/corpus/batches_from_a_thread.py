"""A thread reads the batches from the loader and hands them over in a queue."""
# outcome: trains, or refused: outside of a loop over the prepared loader|at another batch

import queue
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


def fill(loader, batches):
    for batch in loader:
        batches.put(batch)
    batches.put(None)


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    batches = queue.Queue(maxsize=2)
    thread = threading.Thread(target=fill, args=(loader, batches), daemon=True)
    thread.start()
    while (batch := batches.get()) is not None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()
        pace()
    thread.join()
finish(model)
