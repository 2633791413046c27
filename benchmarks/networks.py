"""Networks and data that benchmarks train, by Tidepool and by its competitors alike."""

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy
import torch
from torch import nn
from torch.utils.data import TensorDataset

__all__ = ["SOAKED", "TRAININGS", "Training", "digits", "layers", "samples"]

CLASSES = 10
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "digits-cnn"


def layers(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Fully connected layers, from the number of inputs to the number of outputs."""
    parts = [part for width in itertools.pairwise(widths) for part in (nn.Linear(*width), activation())]
    return nn.Sequential(*parts[:-1])


def samples(inputs: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(4096, inputs, generator=generator)
    return TensorDataset(values, values[:, :CLASSES].argmax(1))


def digits(folder: str | Path) -> TensorDataset:
    """The digits to train on, as `datasets.digits` wrote them."""
    with numpy.load(Path(folder) / "train.npz") as arrays:
        return TensorDataset(torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"]))


def _example() -> nn.Module:
    sys.path.insert(0, str(EXAMPLE))
    from digits_cnn import DigitsCNN

    network: nn.Module = DigitsCNN()
    return network


def _plain() -> nn.Module:
    """9,000 parameters; nothing that looks at its batch, nothing random."""
    return nn.Sequential(nn.Flatten(), *layers(64, 128, CLASSES, activation=nn.Tanh))


def _noisy() -> nn.Module:
    """19,000 parameters, BatchNorm and dropout."""
    features = [nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    head = [nn.Linear(128, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, CLASSES)]
    return nn.Sequential(*features, nn.Dropout(0.2), *head)


@dataclass(frozen=True)
class Training:
    network: Callable[[], nn.Module]
    #: Samples of a step, over all ranks.
    batch: int
    #: Number of inputs of generated samples; 0: the digits.
    inputs: int = 128

    def data(self, folder: str) -> TensorDataset:
        return samples(self.inputs) if self.inputs else digits(folder)


#: Trainings of `resize` and `hand_over`, by their number of parameters, and the one of `recovery`.
TRAININGS = {
    "1M": Training(partial(layers, 128, 940, 940, CLASSES), batch=64),
    "25M": Training(partial(layers, 128, 3500, 3500, 3500, CLASSES), batch=32),
    "100M": Training(partial(layers, 128, 7000, 7000, 7000, CLASSES), batch=32),
    "digits": Training(_example, batch=64, inputs=0),
}
#: Trainings of `soak`: small, so that one bears many deaths in a short time.
SOAKED = {"plain": _plain, "noisy": _noisy}
