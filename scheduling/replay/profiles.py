"""Measured trainings: how long a step takes, what it is worth, and when an epoch ends.

The tables are those of the Pollux paper's artifact (`benchmarks/traces`): times of steps by placement and micro-batch,
and per batch size a table of epochs. What lies between two measurements is interpolated.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby
from math import inf
from operator import itemgetter

import numpy as np

__all__ = ["Application", "Batch", "Placement", "StepTime", "application"]

#: Ranks per host, in the order of the hosts.
Placement = tuple[int, ...]
#: Largest measured number of hosts, and the number up to which every placement was measured; above it, only some were.
MAX_HOSTS, MAX_PLACED_HOSTS = 16, 4


@dataclass(frozen=True)
class Batch:
    """Batch of each rank in a step: `pieces` micro-batches of `micro` samples."""

    micro: int
    pieces: int = 1

    def samples(self, ranks: int) -> int:
        return ranks * self.micro * self.pieces


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step of one micro-batch, and of these what the ranks wait for each other."""

    step: float
    sync: float

    def of(self, batch: Batch) -> float:
        """Only the last of several micro-batches is followed by a sum over the ranks."""
        return self.step + (batch.pieces - 1) * (self.step - self.sync)


@dataclass(frozen=True)
class _Epochs:
    """Values of one batch size, one for each epoch at its end."""

    progress: np.ndarray
    iteration: np.ndarray
    grad_sqr: np.ndarray
    grad_var: np.ndarray


@dataclass(frozen=True, eq=False)
class Application:
    """A training as it was measured. Batch sizes are samples; progress is counted in steps at `smallest_batch`."""

    name: str
    #: (hosts, ranks, micro-batch) -> (step, sync) seconds: means over the placements of that shape.
    _shapes: Mapping[tuple[int, int, int], tuple[float, float]]
    #: Placement -> [micro-batch, step, sync], by micro-batch.
    _placements: Mapping[Placement, np.ndarray]
    #: Batch size -> its epochs, in order of the batch size.
    _epochs: Mapping[int, _Epochs]

    @cached_property
    def smallest_batch(self) -> int:
        return min(self._epochs)

    @cached_property
    def largest_batch(self) -> int:
        return max(self._epochs)

    @cached_property
    def micro_bounds(self) -> tuple[int, int]:
        """The smallest and largest micro-batch of a rank. One that was left out on many hosts, though a step there
        would not have been too large, is too large for a rank."""
        many = [(ranks, micro) for hosts, ranks, micro in self._shapes if hosts > MAX_PLACED_HOSTS]
        fewest_ranks = min((ranks for ranks, _ in many), default=inf)
        kept = {micro for _, micro in many}
        sizes = {micro for _, _, micro in self._shapes if micro in kept or micro * fewest_ranks > self.largest_batch}
        return min(sizes), max(sizes)

    @cached_property
    def epoch_ends(self) -> tuple[float, ...]:
        """Progress at the end of each epoch: that of the batch size that gets there with least."""
        return tuple(np.min([epochs.progress for epochs in self._epochs.values()], axis=0).tolist())

    @cached_property
    def step_times(self) -> "_StepTimes":
        return _StepTimes(self._shapes, self._placements)

    def times_on(self, kind: str) -> "_StepTimes":
        """Return the measured times, which are the same for every kind of GPU."""
        return self.step_times

    def noise(self, batch: float, epoch: int) -> tuple[float, float]:
        """Return variance of a sample's gradient in this epoch (from 0), and squared length of the true one."""
        variance = self._between(batch, epoch, "grad_var") * self.smallest_batch
        return variance, self._between(batch, epoch, "grad_sqr")

    def gain(self, batch: float, epoch: int) -> float:
        """Return how many steps at `smallest_batch` a step at `batch` is worth in this epoch."""
        return _gain(self, batch, epoch)

    def iterations(self, batch: float, epochs: int) -> float:
        """Steps that the first so many epochs take at this batch size."""
        return self._between(batch, epochs - 1, "iteration") if epochs else 0.0

    def _between(self, batch: float, epoch: int, column: str) -> float:
        values = [getattr(epochs, column)[epoch] for epochs in self._epochs.values()]
        return float(np.interp(batch, list(self._epochs), values))


class _StepTimes:
    """Placement and micro-batch -> seconds, each computed once."""

    def __init__(
        self,
        shapes: Mapping[tuple[int, int, int], tuple[float, float]],
        placements: Mapping[Placement, np.ndarray],
    ) -> None:
        from scipy.interpolate import LinearNDInterpolator  # for who replays, as in measuring.py

        self._placements = placements
        self._between = LinearNDInterpolator(np.array(list(shapes), float), np.array(list(shapes.values())))
        self._known: dict[tuple[Placement, int], StepTime] = {}

    def __call__(self, placement: Placement, micro: int) -> StepTime:
        key = _smallest_rotation(placement), micro
        if key not in self._known:
            self._known[key] = StepTime(*(float(value) for value in self._found(*key)))
        return self._known[key]

    def _found(self, placement: Placement, micro: int) -> Iterable[float]:
        if (rows := self._placements.get(placement)) is not None:
            return [np.interp(micro, rows[:, 0], rows[:, column]) for column in (1, 2)]
        found = self._between(min(len(placement), MAX_HOSTS), sum(placement), micro)
        found = np.ravel(found)
        if np.isnan(found).any():
            raise ValueError(f"no measured times around placement {placement} with micro-batches of {micro}")
        return found


@cache
def _gain(application: Application, batch: float, epoch: int) -> float:
    variance, squared = application.noise(batch, epoch)
    return (variance / application.smallest_batch + squared) / (variance / batch + squared)


@cache
def _smallest_rotation(placement: Placement) -> Placement:
    return min(placement[turn:] + placement[:turn] for turn in range(len(placement)))


def application(name: str, files: Mapping[str, str]) -> Application:
    """`files`: name in the application's folder of the traces -> its text."""
    measured = [
        (tuple(int(digit) for digit in row["placement"]), int(row["local_bsz"]), *_times(row))
        for row in csv.DictReader(files["placements.csv"].splitlines())
    ]
    by_shape: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
    for placement, micro, step, sync in measured:
        by_shape.setdefault((len(placement), sum(placement), micro), []).append((step, sync))
    shapes = {shape: tuple(np.mean(times, axis=0).tolist()) for shape, times in sorted(by_shape.items())}
    for row in csv.DictReader(files["scalability.csv"].splitlines()):
        shapes[int(row["num_nodes"]), int(row["num_replicas"]), int(row["local_bsz"])] = _times(row)
    placements = {
        placement: np.array(sorted(row[1:] for row in rows))
        for placement, rows in groupby(sorted(measured), key=itemgetter(0))
    }
    tables = {
        int(file.removeprefix("validation-").removesuffix(".csv")): _epochs(text)
        for file, text in files.items()
        if file.startswith("validation-")
    }
    return Application(name, shapes, placements, dict(sorted(tables.items())))


def _times(row: Mapping[str, str]) -> tuple[float, float]:
    return float(row["step_time"]), float(row["sync_time"])


def _epochs(text: str) -> _Epochs:
    rows = list(csv.DictReader(text.splitlines()))
    columns = ("progress", "iteration", "grad_sqr", "grad_var")
    return _Epochs(*(np.array([float(row[column]) for row in rows]) for column in columns))
