"""A residual network for small images, in a module of its own, so that a notebook can load trained weights into it."""

import torch
from torch import nn
from torch.nn import functional

_GROUPS = 4


class SmallResNet(nn.Module):
    """[n, 3, 32, 32] colour images, normalized -> [n, 10] logits. 20,000 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.GroupNorm(_GROUPS, 8),
            nn.ReLU(),
            Block(8, 8, stride=2),
            Block(8, 16, stride=2),
            Block(16, 32, stride=2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


class Block(nn.Module):
    """Two convolutions beside a shortcut.

    Normalized by groups of channels: a batch norm would depend on how many images a GPU has of a step, and so on the
    number of GPUs.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(_GROUPS, outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.GroupNorm(_GROUPS, outputs),
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.path(images) + self.shortcut(images))
