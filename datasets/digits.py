"""Digits from scikit-learn as files, the data of the demo, tests and benchmarks. Needs no Django."""

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np

__all__ = ["write_digits"]

_TEST_PART = 0.2


def write_digits(folder: Path) -> None:
    """Write train.npz and test.npz: 1,797 images of 8 x 8 pixels, a fifth held out. The bytes are always the same."""
    pixels_and_label = _table()
    images = (pixels_and_label[:, :-1] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = pixels_and_label[:, -1].astype(np.int64)
    order = np.random.RandomState(0).permutation(len(labels))
    held_out = int(len(labels) * _TEST_PART)
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("test.npz", order[:held_out]), ("train.npz", order[held_out:])):
        np.savez(folder / name, images=images[part], labels=labels[part])


def _table() -> np.ndarray:
    """Return the table that `sklearn.datasets.load_digits` reads: a row of 64 pixels (0 to 16) and a digit per image.

    The file is read without importing scikit-learn, which takes two seconds and 100 MB.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("The digits come with scikit-learn: install requirements.txt.")
    with gzip.open(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz") as lines:
        return np.loadtxt(lines, delimiter=",")
