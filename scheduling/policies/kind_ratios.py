"""Speed of a training on a kind of GPU on which it was not measured, by trainings that were measured on both kinds.

R(k, b) is the goodput on one GPU of kind k over that on one of kind b. A training's own measurements count first. For
the other kinds, R is the median over trainings of the same code; else over all trainings; else the product of two such
medians by way of a third kind; else 1. Medians include trainings that are over.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import combinations
from statistics import median
from typing import Literal, NamedTuple

from scheduling.snapshot import KindRatio

__all__ = [
    "ALL_CODES",
    "LARGEST_RATIO",
    "ORDER",
    "Estimate",
    "MeasuredRatio",
    "Ratios",
    "Source",
    "medians",
    "ratios_of",
]

#: Origin of a speed on a kind of GPU: the training's own measurements, the median over trainings of its code, the
#: median over all trainings, two medians by way of a third kind, or no measurement at all.
Source = Literal["measured", "code", "others", "third", "unknown"]
#: Sources from the most to the least certain.
ORDER: Mapping[Source, int] = {"measured": 0, "code": 1, "others": 2, "third": 3, "unknown": 4}
#: `KindRatio.code` of the medians over all trainings.
ALL_CODES = ""
#: Ratios beyond this factor are measurement errors.
LARGEST_RATIO = 1000.0


class MeasuredRatio(NamedTuple):
    """Ratio of one training that was measured on both kinds; `base` precedes `kind` in the alphabet."""

    job: int
    code: str
    kind: str
    base: str
    ratio: float


class Estimate(NamedTuple):
    ratio: float
    source: Source
    #: Number of trainings whose median it is; of two medians, the smaller number.
    trainings: int = 0
    #: Kind of GPU that the ratio is relative to.
    base: str = ""
    #: The third kind, where the ratio goes by way of one.
    by_way_of: str = ""


MEASURED = Estimate(1.0, "measured")


def ratios_of(job: int, code: str, speeds: Mapping[str, float]) -> Iterator[MeasuredRatio]:
    """Yield the ratios of a training. `speeds`: its goodput on one GPU of each kind that it was measured on."""
    for base, kind in combinations(sorted(speeds), 2):
        if not (speeds[kind] > 0 and speeds[base] > 0):
            continue
        ratio = speeds[kind] / speeds[base]
        if 1 / LARGEST_RATIO <= ratio <= LARGEST_RATIO:
            yield MeasuredRatio(job, code, kind, base, ratio)


def medians(measured: Iterable[MeasuredRatio], codes: Collection[str]) -> tuple[KindRatio, ...]:
    """Return the medians over all trainings, and over those of each of `codes`."""
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for one in measured:
        found[ALL_CODES, one.kind, one.base].append(one.ratio)
        if one.code in codes and one.code != ALL_CODES:
            found[one.code, one.kind, one.base].append(one.ratio)
    return tuple(
        KindRatio(kind, base, median(ratios), len(ratios), code) for (code, kind, base), ratios in sorted(found.items())
    )


class Ratios:
    """The ratios of a snapshot, with the estimates that follow from them."""

    def __init__(self, known: Iterable[KindRatio] = ()) -> None:
        self._direct: dict[tuple[str, str, str], Estimate] = {}
        neighbours: dict[str, set[str]] = defaultdict(set)
        for one in known:
            source: Source = "others" if one.code == ALL_CODES else "code"
            for kind, base, ratio in ((one.kind, one.base, one.ratio), (one.base, one.kind, 1 / one.ratio)):
                self._direct[one.code, kind, base] = Estimate(ratio, source, one.trainings, base)
                neighbours[kind].add(base)
        self._neighbours = {kind: sorted(others) for kind, others in neighbours.items()}
        self._estimates: dict[tuple[str, str, str], Estimate] = {}

    def estimate(self, code: str, kind: str, base: str) -> Estimate:
        """Return R(kind, base) for a training of this code that was measured on `base` alone."""
        if kind == base:
            return Estimate(1.0, "measured", base=base)
        key = code, kind, base
        if key not in self._estimates:
            self._estimates[key] = self._median(*key) or self._by_third(*key) or Estimate(1.0, "unknown", base=base)
        return self._estimates[key]

    def best_estimate(self, code: str, kind: str, measured: Iterable[str]) -> Estimate:
        """Return the estimate relative to that of the measured kinds of which most is known."""
        found = (self.estimate(code, kind, base) for base in sorted(measured))
        return min(found, key=lambda one: (ORDER[one.source], -one.trainings))

    def among_all(self, kind: str, base: str) -> float | None:
        """Return the median of R(kind, base) over all trainings; None if none was measured on both."""
        found = self._direct.get((ALL_CODES, kind, base))
        return None if found is None else found.ratio

    def _median(self, code: str, kind: str, base: str) -> Estimate | None:
        return self._direct.get((code, kind, base)) or self._direct.get((ALL_CODES, kind, base))

    def _by_third(self, code: str, kind: str, base: str) -> Estimate | None:
        best: Estimate | None = None
        for third in self._neighbours.get(kind, ()):
            one, other = self._median(code, kind, third), self._median(code, third, base)
            if one is None or other is None:
                continue
            trainings = min(one.trainings, other.trainings)
            if best is None or trainings > best.trainings:
                best = Estimate(one.ratio * other.ratio, "third", trainings, base, third)
        return best
