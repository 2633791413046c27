"""An exponential average of the weights in a dict of tensors, by an object that is not given."""
# outcome: refused: average.shadow, .* tidepool.torch.prepare

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Average:
    def __init__(self, model, decay=0.9):
        self.model, self.decay = model, decay
        self.shadow = {name: value.data.clone() for name, value in model.named_parameters()}

    def update(self):
        for name, value in self.model.named_parameters():
            self.shadow[name] = self.decay * self.shadow[name] + (1.0 - self.decay) * value.data


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
average = Average(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        average.update()
        pace()
finish(model, **{f"average {name}": value for name, value in average.shadow.items()})
