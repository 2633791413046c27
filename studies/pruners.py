"""When a trial is stopped early: at rungs, which are parts of its progress, its value is compared with those of others.

Progress is not counted in steps or seconds, which mean other things after a resize. The rules are those of Optuna's
SuccessiveHalvingPruner, HyperbandPruner and MedianPruner; they need nothing but the values.
"""

import binascii
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from studies.trials import Goal, PastTrial

__all__ = ["PRUNERS", "Verdict", "bracket_of", "judge", "others_at", "rungs_of", "value_at"]

PRUNERS = ("none", "median", "asha", "hyperband")
#: Number of rungs of asha: the first one is at 1/27 if each keeps a third.
RUNGS = 3
#: Finished trials before the median rule stops the first trial.
MEDIAN_STARTUP_TRIALS = 5
#: The median rule looks at each trial after each tenth.
_MEDIAN_RUNGS = tuple(tenth / 10 for tenth in range(1, 10))
#: Progress is a quotient of floats: 3 of 9 epochs reach the rung at 1/3.
_TOLERANCE = 1e-9
_PARTS = {2: "half", 3: "third", 4: "quarter", 5: "fifth"}


@dataclass(frozen=True)
class Verdict:
    """Whether a trial is stopped at a rung, and the figures of the sentence that says why."""

    prunes: bool
    pruner: str
    rung: float
    value: float
    #: Number of values at the rung, the trial's own included. The median does not count the trial's own.
    count: int
    #: Worst value with which the trial would have gone on, or None if no other has a number.
    limit: float | None
    eta: int = 3

    @property
    def sentence(self) -> str:
        """Return why the trial was stopped, or an empty text if it goes on."""
        if not self.prunes:
            return ""
        rung = Fraction(self.rung).limit_denominator(1000)
        if not math.isfinite(self.value) or self.limit is None:
            return f"The value after {rung} is not a finite number."
        after = f"{self.value:.4g} after {rung}"
        if self.pruner == "median":
            return f"{after} is worse than the median of {self.count} finished trials ({self.limit:.4g})."
        if self.count < self.eta:
            return f"{after} is not the best of {self.count} ({self.limit:.4g})."
        part = _PARTS.get(self.eta, f"1/{self.eta}")
        return f"{after} is not among the best {part} of {self.count} ({self.limit:.4g})."


def rungs_of(pruner: str, number: int, seed: int, eta: int = 3) -> tuple[float, ...]:
    """Return the parts of its progress at which the trial with this number is judged, in ascending order."""
    if pruner == "none":
        return ()
    if pruner == "median":
        return _MEDIAN_RUNGS
    return tuple(1 / eta**power for power in range(RUNGS - bracket_of(pruner, number, seed, eta), 0, -1))


def bracket_of(pruner: str, number: int, seed: int, eta: int = 3) -> int:
    """Return the trial's bracket: how many rungs it skips. Only hyperband has more than one.

    Trials are assigned at random and in the proportions of Hyperband, so each bracket costs about the same.
    """
    if pruner not in PRUNERS:
        raise ValueError(f"{pruner!r} is not a pruner: use one of {', '.join(PRUNERS)}.")
    if pruner != "hyperband":
        return 0
    brackets = RUNGS + 1
    shares = [math.ceil(brackets * eta**left / (left + 1)) for left in reversed(range(brackets))]
    ticket = binascii.crc32(f"{seed}_{number}".encode()) % sum(shares)
    return next(bracket for bracket in range(brackets) if ticket < sum(shares[: bracket + 1]))


def value_at(pruner: str, goal: Goal, rung: float, reported: Mapping[float, float]) -> float | None:
    """Return the value with which a trial is judged at a rung, or None if it has not reached the rung.

    The first report at the rung or later; for the median rule, the best one until then. `reported`: progress -> value.
    """
    reached = [progress for progress in reported if progress >= rung - _TOLERANCE]
    if not reached:
        return None
    if pruner != "median":
        return reported[min(reached)]
    until_then = [value for progress, value in reported.items() if progress <= min(reached)]
    return _best(goal, until_then)


def others_at(
    pruner: str, goal: Goal, rung: float, trial: PastTrial, trials: Iterable[PastTrial], *, seed: int, eta: int = 3
) -> list[float]:
    """Return the values at this rung of the trials with which this one is compared.

    asha and hyperband compare all trials of the bracket that reached the rung, the median rule all that are complete.
    """
    bracket = bracket_of(pruner, trial.number, seed, eta)
    values = [
        # The value that the other trial had after this progress, good or bad, and not its best one.
        value_at("asha", goal, rung, other.reported)
        for other in trials
        if other.number != trial.number
        and (pruner != "median" or other.state == "complete")
        and bracket_of(pruner, other.number, seed, eta) == bracket
    ]
    return [value for value in values if value is not None]


def judge(pruner: str, goal: Goal, rung: float, value: float, others: Sequence[float], *, eta: int = 3) -> Verdict:
    """Return whether a trial with this value at the rung is stopped. `others`: see `others_at`.

    The best value so far always goes on, and one that is not finite never does.
    """
    if pruner not in PRUNERS or pruner == "none":
        raise ValueError(f"{pruner!r} does not judge trials.")
    finite = [other for other in others if math.isfinite(other)]
    count = len(finite) if pruner == "median" else len(finite) + 1
    if not math.isfinite(value):
        return Verdict(True, pruner, rung, value, count, None, eta)
    limit = _median(finite) if pruner == "median" else _last_of_best(goal, [*finite, value], eta)
    is_worse = limit is not None and (value > limit if goal == "minimize" else value < limit)
    return Verdict(is_worse, pruner, rung, value, count, limit, eta)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if len(values) >= MEDIAN_STARTUP_TRIALS else None


def _last_of_best(goal: Goal, values: Sequence[float], eta: int) -> float:
    """Return the worst value of the best 1/eta, or the best value if there are fewer than eta."""
    ranked = sorted(values, reverse=goal == "maximize")
    return ranked[max(len(ranked) // eta - 1, 0)]


def _best(goal: Goal, values: Iterable[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return math.nan
    return min(finite) if goal == "minimize" else max(finite)
