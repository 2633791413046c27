"""Distillation from a frozen teacher that is not given to prepare."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
teacher, student = nn.Linear(6, 4).eval(), nn.Linear(6, 4)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(tensors(44)[0]), batch_size=8)
loader, student, optimizer = prepare(loader, student, optimizer)
for _epoch in epochs(range(4)):
    for (inputs,) in loader:
        with torch.no_grad():
            wanted = teacher(inputs)
        optimizer.zero_grad()
        nn.functional.mse_loss(student(inputs), wanted).backward()
        optimizer.step()
        pace()
finish(student, teacher)
