"""Sharpness-aware minimization by an optimizer that is not given: its base optimizer is, which updates the weights."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Sam(torch.optim.Optimizer):
    def __init__(self, parameters, base, rho=0.05, **options):
        super().__init__(parameters, {"rho": rho, **options})
        self.base = base(self.param_groups, **options)

    @torch.no_grad()
    def first_step(self):
        parameters = [one for group in self.param_groups for one in group["params"]]
        norm = torch.stack([one.grad.norm() for one in parameters]).norm()
        for one in parameters:
            self.state[one]["old"] = one.clone()
            one.add_(one.grad * self.defaults["rho"] / norm)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for one in group["params"]:
                one.copy_(self.state[one]["old"])
        self.base.step()
        self.zero_grad()


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = Sam(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer.base = prepare(loader, model, optimizer.base)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.first_step()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.second_step()
        pace()
finish(model)
