"""CIFAR-10's python batches in the true format: pickles of protocol 2 as Python 2 with its NumPy wrote them.

Written byte by byte, as no Python 3 writes such files: keys and names are Python 2's `str`, the array is one string.
"""

import struct
from pathlib import Path

import numpy as np

__all__ = ["NAMES", "batch", "meta", "write_cifar"]

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def batch(labels: list[int], *, title: str = "training batch 1 of 5", seed: int = 0) -> bytes:
    images = _images(labels, seed)
    names = [f"image_s_{number:06d}.png" for number in range(len(labels))]
    writer = _Python2()
    writer.dictionary(
        batch_label=writer.string(title),
        labels=writer.sequence([writer.integer(label) for label in labels]),
        data=writer.array(images),
        filenames=writer.sequence([writer.string(name) for name in names]),
    )
    return writer.finished()


def _images(labels: list[int], seed: int) -> np.ndarray:
    """Noise, brighter in the tenth of the rows that belongs to the class: so there is something to learn."""
    images = np.random.default_rng(seed).integers(0, 156, (len(labels), 3, 32, 32), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[:, 3 * (label % 10) : 3 * (label % 10) + 3] += 100
    return images.reshape(len(labels), 3072)


def meta(names: list[str] = NAMES) -> bytes:
    writer = _Python2()
    writer.dictionary(
        num_cases_per_batch=writer.integer(10_000),
        label_names=writer.sequence([writer.string(name) for name in names]),
        num_vis=writer.integer(3072),
    )
    return writer.finished()


def write_cifar(folder: Path, *, per_batch: int = 20) -> Path:
    """`train_db` and `test_db`, each with the whole download in `cifar-10-batches-py`, as in IBM's tutorial."""
    labels = [number % 10 for number in range(per_batch)]
    for part in ("train_db", "test_db"):
        inner = folder / part / "cifar-10-batches-py"
        inner.mkdir(parents=True)
        for number in range(1, 6):
            (inner / f"data_batch_{number}").write_bytes(batch(labels, seed=number))
        (inner / "test_batch").write_bytes(batch(labels, title="testing batch 1 of 1", seed=9))
        (inner / "batches.meta").write_bytes(meta())
        (inner / "readme.html").write_text("<meta HTTP-EQUIV=...>\n")
    return folder


class _Python2:
    """cPickle's protocol 2: each thing is put into the memo, as `BINPUT` and, from 256 on, `LONG_BINPUT`."""

    def __init__(self) -> None:
        self._memo = 0
        self._body = b""

    def finished(self) -> bytes:
        return b"\x80\x02" + self._body + b"."

    def put(self) -> bytes:
        number, self._memo = self._memo, self._memo + 1
        return b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number)

    def string(self, text: str | bytes) -> bytes:
        raw = text.encode() if isinstance(text, str) else text
        head = b"U" + bytes([len(raw)]) if len(raw) < 256 else b"T" + struct.pack("<i", len(raw))
        return head + raw + self.put()

    @staticmethod
    def integer(value: int) -> bytes:
        if 0 <= value < 256:
            return b"K" + bytes([value])
        return b"M" + struct.pack("<H", value) if 0 <= value < 65536 else b"J" + struct.pack("<i", value)

    def sequence(self, items: list[bytes]) -> bytes:
        chunks = [items[start : start + 1000] for start in range(0, len(items), 1000)]
        return b"]" + self.put() + b"".join(b"(" + b"".join(chunk) + b"e" for chunk in chunks)

    def dictionary(self, **values: bytes) -> None:
        self._body = b"}" + self.put() + b"("
        for key, value in values.items():
            self._body += self.string(key) + value
        self._body += b"u"

    def array(self, values: np.ndarray) -> bytes:
        rows, columns = values.shape
        reconstruct = b"cnumpy.core.multiarray\n_reconstruct\n" + self.put() + b"cnumpy\nndarray\n" + self.put()
        empty = reconstruct + b"K\x00\x85" + self.put() + b"U\x01b" + b"\x87" + self.put() + b"R" + self.put()
        shape = self.integer(rows) + self.integer(columns) + b"\x86" + self.put()
        dtype = b"cnumpy\ndtype\n" + self.put() + b"U\x02u1" + b"K\x00K\x01\x87" + self.put() + b"R" + self.put()
        dtype += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t" + self.put() + b"b"
        content = b"T" + struct.pack("<i", values.nbytes) + values.tobytes() + self.put()
        return empty + b"(K\x01" + shape + dtype + b"\x89" + content + b"t" + self.put() + b"b"
