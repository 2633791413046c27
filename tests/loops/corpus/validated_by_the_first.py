"""The first process measures the model, and all decide by its number whether to lower the rate."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, from_first, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
loader = DataLoader(TensorDataset(*tensors(42)), batch_size=8)
inputs, labels = tensors(30, seed=5)
loader, model, optimizer = prepare(loader, model, optimizer)


def validate():
    with torch.no_grad():
        return {"loss": nn.functional.cross_entropy(model(inputs), labels).item()}


for _epoch in epochs(range(5)):
    for features, truth in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features), truth).backward()
        optimizer.step()
        pace()
    optimizer.param_groups[0]["lr"] = 0.3 * min(1.0, from_first(validate)["loss"])
finish(model)
