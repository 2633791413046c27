"""Gradients of each sample, clipped and averaged: torch.func computes them, and no backward is called."""
# outcome: trains, or refused: gradient

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)


def loss_of(weights, inputs, label):
    return nn.functional.cross_entropy(functional_call(model, weights, (inputs,)), label)


for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
        gradients = vmap(grad(loss_of), in_dims=(None, 0, 0))(weights, inputs, labels)
        norms = torch.stack([one.flatten(1).norm(dim=1) for one in gradients.values()]).norm(dim=0)
        factors = (0.5 / norms).clamp(max=1)
        for name, parameter in model.named_parameters():
            parameter.grad = torch.einsum("n,n...->...", factors, gradients[name]) / len(inputs)
        optimizer.step()
        pace()
finish(model)
