"""Distillation: the teacher, in eval mode, is named first."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
teacher, student = nn.Linear(6, 4), nn.Linear(6, 4)
teacher.eval().requires_grad_(False)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(tensors(40)[0]), batch_size=8)
loader, teacher, student, optimizer = prepare(loader, teacher, student, optimizer)
for _epoch in epochs(range(4)):
    student.train()
    for (inputs,) in loader:
        optimizer.zero_grad()
        with torch.no_grad():
            wanted = teacher(inputs)
        nn.functional.mse_loss(student(inputs), wanted).backward()
        optimizer.step()
        pace()
finish(teacher, student)
