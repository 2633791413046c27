"""scikit-learn's bundled digits as files: the data of the demo, of tests and of benchmarks. Needs no Django."""

from pathlib import Path

import numpy as np

__all__ = ["write_digits"]

_TEST_PART = 0.2


def write_digits(folder: Path) -> None:
    """train.npz and test.npz: 1,797 images of 8 x 8 pixels, a fifth of them held out. The same bytes each time."""
    # Imported here: it takes two seconds, and only who writes them needs it.
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = digits.target.astype(np.int64)
    order = np.random.RandomState(0).permutation(len(labels))
    held_out = int(len(labels) * _TEST_PART)
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("test.npz", order[:held_out]), ("train.npz", order[held_out:])):
        np.savez(folder / name, images=images[part], labels=labels[part])
