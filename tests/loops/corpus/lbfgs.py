"""L-BFGS computes the loss several times in a step."""
# outcome: refused: LBFGS

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
model = nn.Linear(6, 2)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
loader = DataLoader(TensorDataset(*tensors(32)), batch_size=16)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(2)):
    for inputs, labels in loader:

        def closure(inputs=inputs, labels=labels):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            return loss

        optimizer.step(closure)
        pace()
finish(model)
