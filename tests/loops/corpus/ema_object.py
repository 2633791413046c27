"""An exponential average of the weights, by an object of the script's own with a state_dict."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Average:
    def __init__(self, model, decay=0.9):
        self.decay, self.shadow = decay, {name: value.clone() for name, value in model.state_dict().items()}

    def update(self, model):
        for name, value in model.state_dict().items():
            self.shadow[name].mul_(self.decay).add_(value, alpha=1 - self.decay)

    def state_dict(self):
        return {"shadow": self.shadow}

    def load_state_dict(self, state):
        self.shadow = {name: value.clone() for name, value in state["shadow"].items()}


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
average = Average(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer, average = prepare(loader, model, optimizer, average)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        average.update(model)
        pace()
finish(model, **{f"average {name}": value for name, value in average.shadow.items()})
