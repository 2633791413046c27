"""The usual template: functions train and evaluate, and metrics that are reported."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, is_first, pace, prepare, report, tensors


def train(model, loader, optimizer):
    model.train()
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = sum((model(inputs).argmax(1) == labels).sum().item() for inputs, labels in loader)
    return right / len(loader.dataset)


def main():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adadelta(model.parameters())
    loader = DataLoader(TensorDataset(*tensors(44)), batch_size=8)
    held_out = DataLoader(TensorDataset(*tensors(30, seed=5)), batch_size=30)
    loader, model, optimizer = prepare(loader, model, optimizer)
    for epoch in epochs(range(1, 5)):
        train(model, loader, optimizer)
        accuracy = evaluate(model, held_out)
        report(accuracy=accuracy, train_accuracy=evaluate(model, loader))
        if is_first():
            print(f"epoch {epoch}: accuracy {accuracy:.3f}", flush=True)
    finish(model)


if __name__ == "__main__":
    main()
