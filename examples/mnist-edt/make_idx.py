"""Data for this example without a download: scikit-learn's bundled digits in the files of MNIST.

`python make_idx.py FOLDER` writes FOLDER/MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte, where torchvision
looks for them too. The same bytes each time.
"""

import sys
from pathlib import Path

import numpy

#: MNIST's, and that of the digits: each of their pixels becomes 3 x 3, in a frame of 2.
SIDE, SCALE, FRAME = 28, 3, 2
TEST_PART = 0.2
#: Magic numbers: unsigned bytes in three dimensions, and in one.
IMAGES, LABELS = 0x803, 0x801


def write_idx(folder: Path) -> Path:
    """Returns the folder with the four files."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = enlarged(digits.images)
    labels = digits.target.astype(numpy.uint8)
    order = numpy.random.RandomState(0).permutation(len(labels))
    held_out = int(len(labels) * TEST_PART)
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for name, part in (("t10k", order[:held_out]), ("train", order[held_out:])):
        header = numpy.array([IMAGES, len(part), SIDE, SIDE], ">i4").tobytes()
        (raw / f"{name}-images-idx3-ubyte").write_bytes(header + images[part].tobytes())
        header = numpy.array([LABELS, len(part)], ">i4").tobytes()
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(header + labels[part].tobytes())
    return raw


def enlarged(images: numpy.ndarray) -> numpy.ndarray:
    """[n, 8, 8] in 0..16 -> uint8 [n, 28, 28] in 0..255."""
    bytes_of_pixels = numpy.clip(images * 16, 0, 255).astype(numpy.uint8)
    larger = bytes_of_pixels.repeat(SCALE, axis=1).repeat(SCALE, axis=2)
    return numpy.pad(larger, ((0, 0), (FRAME, FRAME), (FRAME, FRAME)))


if __name__ == "__main__":
    print(f"Written to {write_idx(Path(sys.argv[1]))}")
