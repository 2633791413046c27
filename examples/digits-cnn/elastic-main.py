"""Handwritten digits with a small CNN, in the way of IBM WMLA's elastic distributed training.

The data are scikit-learn's bundled digits: 8 x 8 grey images, as train.npz and test.npz in DATA_DIR.
Runs unchanged by `python elastic-main.py` (one process) and as a Tidepool job (any number of GPUs).
"""

import argparse
import os
from pathlib import Path

import numpy
import torch
from digits_cnn import DigitsCNN
from fabric_model import FabricModel
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

DATA_DIR = Path(os.environ.get("DATA_DIR", "."))


def datasets() -> tuple[Dataset, Dataset]:
    """Called on each rank: the training and the held-out split."""
    return read("train.npz"), read("test.npz")


def read(name: str) -> TensorDataset:
    with numpy.load(DATA_DIR / name) as arrays:
        return TensorDataset(torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="images that one GPU computes at once")
    parser.add_argument("--effective-batch-size", type=int, default=64, help="images per step, over all GPUs")
    parser.add_argument("--learning-rate", type=float, default=0.001)
    parser.add_argument("--max-gpus", type=int, default=8)
    options = parser.parse_args()

    torch.manual_seed(0)
    model = DigitsCNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    fabric = FabricModel(model, datasets, functional.cross_entropy, optimizer)
    fabric.train(
        options.epochs, options.batch_size, options.max_gpus, effective_batch_size=options.effective_batch_size
    )


if __name__ == "__main__":
    main()
