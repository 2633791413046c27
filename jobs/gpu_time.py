"""GPU time, in whole milliseconds since 1970, so that cutting and summing are exact.

Pure: no clock, no database. An `Interval` is a claim that was released, or is held until now.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from operator import add, sub

__all__ = [
    "DAY",
    "HOUR",
    "MINUTE",
    "NOTHING",
    "PIECE",
    "Amount",
    "Interval",
    "Measure",
    "Sums",
    "amount_in",
    "cuts",
    "moment",
    "share_of",
    "summed_up",
    "to_ms",
]

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
#: Milliseconds over which GPU activity is summed.
PIECE = 15 * MINUTE
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Amount:
    """Milliseconds of GPU time, in the categories of `jobs.queries.gpu_status`.

    Time held but not training is starting or releasing; time neither busy nor idle was not measured.
    """

    held: int = 0
    busy: int = 0
    idle: int = 0
    training: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(*map(add, self.parts, other.parts))

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(*map(sub, self.parts, other.parts))

    @property
    def parts(self) -> tuple[int, int, int, int]:
        return self.held, self.busy, self.idle, self.training

    @property
    def changing(self) -> int:
        return self.held - self.training

    @property
    def unmeasured(self) -> int:
        return max(0, self.held - self.busy - self.idle)


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Measure:
    """Busy and idle milliseconds of a held GPU between two moments, spread evenly."""

    start: int
    end: int
    busy: int
    idle: int


@dataclass(frozen=True, slots=True)
class Interval:
    #: Owner of the time in the sum: the number of a job, user or group, or the name of a host or model.
    subject: int | str
    gpu_model: str
    start: int
    end: int
    measures: Sequence[Measure] = field(default=())
    gpus: int = 1
    #: Part of the interval spent training, (start, end); None: no training.
    trains: tuple[int, int] | None = None

    def training_in(self, start: int, end: int) -> int:
        """Return the milliseconds of training in [start, end)."""
        if self.trains is None:
            return 0
        first, last = max(start, self.start, self.trains[0]), min(end, self.end, self.trains[1])
        return max(0, last - first) * self.gpus


#: (subject, GPU model, period of prices) -> GPU time.
Sums = Mapping[tuple[int | str, str, int], Amount]


def to_ms(at: datetime) -> int:
    """Return Unix milliseconds, rounded down: adjacent times stay adjacent."""
    return (at - _EPOCH) // _MILLISECOND


def moment(milliseconds: int) -> datetime:
    return _EPOCH + milliseconds * _MILLISECOND


def cuts(start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of [start, end), cut at multiples of `size`."""
    while start < end:
        until = min(end, start - start % size + size)
        yield start, until
        start = until


def amount_in(interval: Interval, start: int, end: int) -> Amount:
    """Return the interval's GPU time in [start, end). A measure that extends beyond it counts in proportion."""
    length = min(interval.end, end) - max(interval.start, start)
    if length <= 0:
        return NOTHING
    busy = idle = 0
    for measure in interval.measures:
        share = min(measure.end, end) - max(measure.start, start)
        if share > 0:
            part = share_of(measure, share)
            busy, idle = busy + part.busy, idle + part.idle
    return Amount(length * interval.gpus, busy, idle, interval.training_in(start, end))


def share_of(measure: Measure, milliseconds: int) -> Amount:
    """Return the part of a measure that falls to this many of its milliseconds."""
    length = measure.end - measure.start
    return Amount(0, measure.busy * milliseconds // length, measure.idle * milliseconds // length)


def summed_up(intervals: Iterable[Interval], start: int, end: int, borders: Sequence[int] = ()) -> Sums:
    """Return the sums of GPU time in [start, end). Period n starts at the n-th border; period 0 is before the first."""
    found: dict[tuple[int | str, str, int], Amount] = defaultdict(Amount)
    edges = [start, *(border for border in borders if start < border < end), end]
    first = sum(border <= start for border in borders)
    for interval in intervals:
        for number, (begins, ends) in enumerate(pairwise(edges), start=first):
            part = amount_in(interval, begins, ends)
            if part.held:
                found[interval.subject, interval.gpu_model, number] += part
    return found
