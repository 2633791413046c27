"""The networks of `soak.py`: small, so that a training bears many deaths in a short time."""

from __future__ import annotations

from torch import nn

__all__ = ["NETWORKS"]


def plain() -> nn.Module:
    """9,000 parameters; nothing that looks at its batch, nothing random."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 10))


def noisy() -> nn.Module:
    """19,000 parameters, BatchNorm and dropout."""
    features = [nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(
        *features, nn.Dropout(0.2), nn.Linear(128, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10)
    )


NETWORKS = {"plain": plain, "noisy": noisy}
