"""Cross entropy with weights of classes and label smoothing, and a penalty of the parameters in the same loss."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]), label_smoothing=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        penalty = sum(parameter.square().sum() for parameter in model.parameters())
        optimizer.zero_grad()
        (criterion(model(inputs), labels) + 0.01 * penalty).backward()
        optimizer.step()
        pace()
finish(model)
