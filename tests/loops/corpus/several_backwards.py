"""Two losses, each with a backward of its own, and one step."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
body, first, second = nn.Sequential(nn.Linear(6, 16), nn.Tanh()), nn.Linear(16, 2), nn.Linear(16, 6)
model = nn.ModuleList([body, first, second])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        features = body(inputs)
        nn.functional.cross_entropy(first(features), labels).backward(retain_graph=True)
        (0.3 * nn.functional.mse_loss(second(features), inputs)).backward()
        optimizer.step()
        pace()
finish(model)
