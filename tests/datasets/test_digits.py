from pathlib import Path

import numpy as np

from datasets.digits import write_digits


def test_holds_each_of_scikit_learns_images_once(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits  # a second of processor time for each process that collects tests

    write_digits(tmp_path)

    parts = [np.load(tmp_path / f"{name}.npz") for name in ("train", "test")]
    assert [len(part["labels"]) for part in parts] == [1438, 359]
    written = {(image.tobytes(), int(label)) for part in parts for image, label in zip(*part.values(), strict=True)}
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)
    assert written == {(image.tobytes(), int(label)) for image, label in zip(images, digits.target, strict=True)}
