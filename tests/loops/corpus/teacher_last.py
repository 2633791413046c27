"""Distillation: the student is named first; temperatures soften both."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
student, teacher = nn.Linear(6, 4), nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
teacher.eval().requires_grad_(False)
optimizer = torch.optim.Adam(student.parameters(), lr=0.02)
loader = DataLoader(TensorDataset(tensors(44)[0]), batch_size=8)
loader, student, teacher, optimizer = prepare(loader, student, teacher, optimizer)
for _epoch in epochs(range(4)):
    for (inputs,) in loader:
        with torch.no_grad():
            soft = (teacher(inputs) / 2).softmax(1)
        loss = nn.functional.kl_div((student(inputs) / 2).log_softmax(1), soft, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace()
finish(student, teacher)
