"""An optimizer for each parameter, which steps in the backward as soon as the gradient is there."""
# outcome: trains, or refused: hook

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1, momentum=0.9) for parameter in model.parameters()}


def step(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(step)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, *_optimizers = prepare(loader, model, *optimizers.values())
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        nn.functional.cross_entropy(model(inputs), labels).backward()
        pace()
finish(model)
