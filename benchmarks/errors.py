"""Uncertainty of a replayed training: its steps take longer or shorter, and its measures are off."""

from math import exp
from random import Random

__all__ = ["Errors"]


class Errors:
    """Errors of one training, see `scheduling.replay.measuring.Errors`: the same numbers for the same seed.

    `spread`: its slowest steps take so many times as long as its fastest. `error`: standard deviation of the logarithm
    of what is measured over what is true.
    """

    def __init__(self, seed: str, *, spread: float, error: float) -> None:
        self._random = Random(seed)
        self._spread, self._error = spread, error

    def pace(self) -> float:
        return float(self._spread ** self._random.uniform(-0.5, 0.5))

    def measured(self, value: float) -> float:
        return value * exp(self._random.gauss(0.0, self._error))
