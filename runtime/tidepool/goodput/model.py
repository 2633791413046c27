"""The speed of a training as a function of where it runs, and what a larger batch is worth. Seconds and samples.

    Size                  hosts n and ranks r of a job; its link is 0 (one rank), 1 (one host) or 2 (several hosts)
    Point                 measured: a micro-batch of b samples on (n, r) computes for A seconds, its whole step takes T
    ThroughputParameters  nine numbers for a kind of GPU, fitted to points (`fit`), from which A and T follow
    NoiseScale            S and Q: variance of one sample's gradient, squared length of the true gradient
    Bounds                the effective batch M0 of the job and how far it may be changed

A step over M samples has s micro-batches without a sum and one with it: s (A + H) + T seconds, M <= r b (s + 1). With
N for the sum over the link, and H for what a rank does beside the gradients (an optimizer's step, logging, the script's
own work): A = compute_base + compute_per_sample b, H = beside_base + beside_per_sample b, N = base + per_rank
max(r - 2, 0), T = H + (A^y + N^y)^(1/y) with y = `overlap`: 1 adds both, a large one hides the shorter. (But for H, the
form is Pollux's, OSDI 2021, section 3.2.)

The noise scale is phi = S / Q samples. gain(M) = (S/M0 + Q) / (S/M + Q): how many steps at M0 a step at M is worth.
Goodput = gain(M) / (s (A + H) + T), in steps at M0 per second. Where M = M0 it is steps per second.

All shapes check their numbers (ValueError) and survive `msgspec.json` both ways.
"""

from dataclasses import dataclass, fields
from math import isfinite
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "FLOOR",
    "LARGEST",
    "Bounds",
    "NoiseScale",
    "Point",
    "Size",
    "ThroughputParameters",
    "efficiency",
    "gain",
]

#: The least of each parameter in seconds: as good as nothing, and a logarithm of it exists.
FLOOR = 1e-8
#: No time, batch or noise that was really measured is larger.
LARGEST = 1e12

#: A number, or an array of them: the formulas work element by element.
Numbers = float | npt.NDArray[np.float64]


class Size(NamedTuple):
    hosts: int
    ranks: int

    @property
    def link(self) -> int:
        return 0 if self.ranks == 1 else 1 if self.hosts == 1 else 2


def _check(name: str, value: float, least: float, most: float = LARGEST) -> None:
    if not (isfinite(value) and least <= value <= most):
        raise ValueError(f"{name} is {value!r}: it has to be a number from {least:g} to {most:g}")


@dataclass(frozen=True, slots=True)
class Point:
    """Medians of the steps measured at one size with one micro-batch."""

    hosts: int
    ranks: int
    #: Samples of a rank's micro-batch: b.
    micro_batch: int
    #: Seconds of forward and backward of one micro-batch, without the sum: A.
    compute_seconds: float
    #: Seconds of the micro-batch with which the sum runs: T. A step with s more micro-batches takes s (A + H) + T.
    step_seconds: float
    #: Number of steps that the median is taken over.
    steps: int

    def __post_init__(self) -> None:
        _check("hosts", self.hosts, 1, 1e6)
        _check("ranks", self.ranks, self.hosts, 1e6)
        _check("micro_batch", self.micro_batch, 1)
        _check("compute_seconds", self.compute_seconds, FLOOR)
        _check("step_seconds", self.step_seconds, FLOOR)
        _check("steps", self.steps, 1)

    @property
    def size(self) -> Size:
        return Size(self.hosts, self.ranks)


@dataclass(frozen=True, slots=True)
class ThroughputParameters:
    """Parameters of one kind of GPU. All in seconds but `overlap`, which has no unit."""

    compute_base: float
    compute_per_sample: float
    #: The sum among ranks of one host: for two, and for each further rank.
    host_base: float
    host_per_rank: float
    #: The sum among ranks of several hosts.
    network_base: float
    network_per_rank: float
    #: y, from 1 to 10.
    overlap: float
    #: Work of a rank with each micro-batch beside its gradients, and with each sample of it.
    beside_base: float = 0.0
    beside_per_sample: float = 0.0

    def __post_init__(self) -> None:
        for one in fields(self):
            if one.name != "overlap":
                _check(one.name, getattr(self, one.name), 0.0)
        _check("overlap", self.overlap, 1.0, 10.0)

    def compute_seconds(self, micro_batch: Numbers) -> Numbers:
        """A: forward and backward of a rank's micro-batch."""
        return self.compute_base + self.compute_per_sample * micro_batch

    def sum_seconds(self, size: Size) -> float:
        """N: the sum of gradients over all ranks."""
        base, per_rank = (
            (0.0, 0.0),
            (self.host_base, self.host_per_rank),
            (self.network_base, self.network_per_rank),
        )[size.link]
        return base + per_rank * max(size.ranks - 2, 0)

    def beside_seconds(self, micro_batch: Numbers) -> Numbers:
        """H: the work of a rank with a micro-batch beside its gradients."""
        return self.beside_base + self.beside_per_sample * micro_batch

    def whole_step_seconds(self, micro_batch: Numbers, total: Numbers, further: Numbers = 0.0) -> Numbers:
        """s (A + H) + T, from b, N and s."""
        compute, beside = self.compute_seconds(micro_batch), self.beside_seconds(micro_batch)
        return further * (compute + beside) + (beside + self.step_seconds(compute, total))

    def step_seconds(self, compute: Numbers, total: Numbers) -> Numbers:
        """T without H, from A and N."""
        longer = np.maximum(np.maximum(compute, total), FLOOR)
        return longer * (1 + (np.minimum(compute, total) / longer) ** self.overlap) ** (1 / self.overlap)


@dataclass(frozen=True, slots=True)
class NoiseScale:
    #: S: trace of the covariance of one sample's gradient.
    variance: float
    #: Q: squared length of the true gradient.
    squared_gradient: float

    def __post_init__(self) -> None:
        _check("variance", self.variance, 0.0, 1e30)
        _check("squared_gradient", self.squared_gradient, 0.0, 1e30)

    @property
    def samples(self) -> float:
        """phi: from about this batch on more samples in a step help little. Infinite where there is no gradient."""
        return self.variance / self.squared_gradient if self.squared_gradient else float("inf")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The effective batch that a job was submitted with, and how far it may be changed."""

    #: M0.
    batch_size: int
    #: Largest batch size; None: the batch never changes.
    max_batch_size: int | None = None
    #: Samples of a rank's micro-batch. Without a maximum, all that a rank has of a step is one.
    min_micro_batch: int = 1
    max_micro_batch: int | None = None
    #: A step may have several micro-batches.
    accumulation: bool = True

    def __post_init__(self) -> None:
        _check("batch_size", self.batch_size, 1)
        _check("min_micro_batch", self.min_micro_batch, 1)
        if self.max_batch_size is not None:
            _check("max_batch_size", self.max_batch_size, self.batch_size)
        if self.max_micro_batch is not None:
            _check("max_micro_batch", self.max_micro_batch, self.min_micro_batch)

    @property
    def is_adaptive(self) -> bool:
        return self.max_batch_size is not None


def gain(noise: NoiseScale | None, batch_size: int, batch: Numbers) -> Numbers:
    """Return how many steps at `batch_size` one step at `batch` is worth; 1 where the noise is unknown or nothing."""
    if noise is None or not (noise.variance or noise.squared_gradient):
        return np.ones_like(batch, dtype=np.float64) if isinstance(batch, np.ndarray) else 1.0
    variance, squared = noise.variance, noise.squared_gradient
    return (variance / batch_size + squared) / (variance / batch + squared)


def efficiency(noise: NoiseScale | None, batch_size: int, batch: Numbers) -> Numbers:
    """Return the value of a sample at `batch`, against one at `batch_size`."""
    return gain(noise, batch_size, batch) * batch_size / batch
