"""Lookahead: slow weights, kept in the optimizer's state, follow after every fifth step."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Lookahead(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            slow = state.setdefault("slow", parameter.detach().clone())
            state["count"] = state.get("count", 0) + 1
            if state["count"] % 5 == 0:
                slow.lerp_(parameter, 0.5)
                parameter.copy_(slow)


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = Lookahead(model.parameters(), lr=0.2, momentum=0.9)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
