"""The model is evaluated on held-out data after every third batch."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, report, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
held_out = DataLoader(TensorDataset(*tensors(30, seed=5)), batch_size=10)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for place, (inputs, labels) in enumerate(loader):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
        if place % 3 == 2:
            model.eval()
            with torch.inference_mode():
                losses = [nn.functional.cross_entropy(model(batch), wanted).item() for batch, wanted in held_out]
            report(held_out=sum(losses) / len(losses))
            model.train()
finish(model)
