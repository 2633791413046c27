"""A thread measures a copy of the model while the loop goes on."""
# outcome: trains

import copy
import threading

import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    TensorDataset,
)
from twin import epochs, finish, pace, prepare, tensors


def measure(copied, held_out, results):
    with torch.no_grad():
        results.append(nn.functional.cross_entropy(copied(held_out[0]), held_out[1]).item())


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
results, threads = [], []
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
    threads.append(threading.Thread(target=measure, args=(copy.deepcopy(model).eval(), tensors(30, seed=5), results)))
    threads[-1].start()
for thread in threads:
    thread.join()
finish(model)
