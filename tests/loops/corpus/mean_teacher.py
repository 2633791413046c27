"""A mean teacher: a second model follows the student's weights after each step."""
# outcome: trains

import copy

import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    TensorDataset,
)
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
student = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
teacher = copy.deepcopy(student).requires_grad_(False)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, student, teacher, optimizer = prepare(loader, student, teacher, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        consistency = nn.functional.mse_loss(student(inputs).softmax(1), teacher(inputs + 0.1).softmax(1))
        loss = nn.functional.cross_entropy(student(inputs), labels) + consistency
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
        pace()
finish(student, teacher)
