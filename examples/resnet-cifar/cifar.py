"""CIFAR-10 as it is downloaded: python batches below `cifar-10-batches-py`, read without torchvision."""

import pickle
from pathlib import Path

import numpy
import torch
from torch.utils.data import Dataset

FOLDER = "cifar-10-batches-py"
TRAINING = [f"data_batch_{number}" for number in range(1, 6)]
TESTING = ["test_batch"]

#: Mean and deviation of the colours over the whole training set.
_MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
_DEVIATION = torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1)


class Images(Dataset):
    """Normalized images [3, 32, 32] and their classes. Kept as bytes: each GPU's process holds all of them."""

    def __init__(self, pixels: torch.Tensor, labels: torch.Tensor) -> None:
        self.pixels, self.labels = pixels, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return (self.pixels[index].float() / 255 - _MEAN) / _DEVIATION, self.labels[index]


def read(root: str, names: list[str]) -> Images:
    """`root` holds the unpacked download."""
    parts = [_batch(Path(root, FOLDER, name)) for name in names]
    return Images(torch.cat([pixels for pixels, _ in parts]), torch.cat([labels for _, labels in parts]))


def _batch(file: Path) -> tuple[torch.Tensor, torch.Tensor]:
    with file.open("rb") as stream:
        batch = pickle.load(stream, encoding="bytes")  # noqa: S301 - the format of the download
    pixels = numpy.asarray(batch[b"data"], dtype=numpy.uint8).reshape(-1, 3, 32, 32)
    return torch.from_numpy(pixels), torch.tensor(batch[b"labels"])
