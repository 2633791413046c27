"""MNIST's files, read without torchvision."""

from pathlib import Path

import numpy
import torch
from torch.utils.data import TensorDataset


def read(folder: Path, name: str) -> TensorDataset:
    """name: "train" or "t10k". Images as float32 [n, 1, 28, 28] in 0..1, and their classes."""
    raw = folder / "MNIST" / "raw"
    images = array(raw / f"{name}-images-idx3-ubyte")
    labels = array(raw / f"{name}-labels-idx1-ubyte")
    pixels = torch.from_numpy(images.astype(numpy.float32) / 255).unsqueeze(1)
    return TensorDataset(pixels, torch.from_numpy(labels.astype(numpy.int64)))


def array(file: Path) -> numpy.ndarray:
    """The numbers of an IDX file of unsigned bytes, in its shape."""
    content = file.read_bytes()
    dimensions = content[3]
    shape = numpy.frombuffer(content, ">i4", dimensions, offset=4)
    return numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * dimensions).reshape(shape)
