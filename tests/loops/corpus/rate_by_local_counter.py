"""The rate follows a counter of updates in a local variable of the function, with accumulation."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


def main():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(*tensors(64)), batch_size=8)
    loader, model, optimizer = prepare(loader, model, optimizer)
    update, micro = 0, 0
    for _epoch in epochs(range(5)):
        for inputs, labels in loader:
            (nn.functional.cross_entropy(model(inputs), labels) / 2).backward()
            micro = micro + 1
            if micro % 2 == 0:
                optimizer.param_groups[0]["lr"] = 0.3 * min(1.0, (update + 1) / 12)
                optimizer.step()
                optimizer.zero_grad()
                update += 1
            pace()
    finish(model)


main()
