"""A quantized activation by an autograd function of the script's own, and a gradient reversal."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(context, inputs):
        context.save_for_backward(inputs)
        return inputs.mul(4).round().div(4)

    @staticmethod
    def backward(context, gradient):
        (inputs,) = context.saved_tensors
        return gradient * (inputs.abs() < 1)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(context, inputs):
        return inputs.view_as(inputs)

    @staticmethod
    def backward(context, gradient):
        return -0.2 * gradient


torch.manual_seed(1)
model = nn.ModuleList([nn.Linear(6, 16), nn.Linear(16, 2), nn.Linear(16, 2)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        features = torch.tanh(model[0](inputs))
        loss = nn.functional.cross_entropy(model[1](Rounded.apply(features)), labels)
        domain = nn.functional.cross_entropy(model[2](Reversed.apply(features)), (inputs[:, 5] > 0).long())
        optimizer.zero_grad()
        (loss + domain).backward()
        optimizer.step()
        pace()
finish(model)
