"""Handwritten digits in plain PyTorch. train.npz and test.npz are in DATA_DIR."""

import argparse
import os
from pathlib import Path

import numpy
import torch
from tidepool.torch import epochs, is_first, prepare
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


def digits(name: str) -> TensorDataset:
    with numpy.load(Path(os.environ.get("DATA_DIR", ".")) / name) as arrays:
        return TensorDataset(torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"]))


def train(options, model, device, loader, optimizer, epoch):
    model.train()
    for place, (images, labels) in enumerate(loader):
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if place % options.log_interval == 0:
            print(f"epoch {epoch} batch {place} of {len(loader)} loss {loss.item():.4f}")


def test(model, device, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for images, labels in loader:
            right += (model(images.to(device)).argmax(1) == labels.to(device)).sum().item()
    print(f"accuracy {100 * right / len(loader.dataset):.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(digits("train.npz"), batch_size=options.batch_size, shuffle=True)
    test_loader = DataLoader(digits("test.npz"), batch_size=256)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.25), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=options.gamma)
    train_loader, model, optimizer, scheduler = prepare(train_loader, model, optimizer, scheduler)
    for epoch in epochs(range(1, options.epochs + 1)):
        train(options, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()
    if is_first():
        torch.save(model.state_dict(), Path(os.environ.get("RESULT_DIR", ".")) / "digits.pt")


if __name__ == "__main__":
    main()
