"""When a job would start and end, if nobody else comes: the group's policy, played forward from one end to the next.

Only numbers are played, not slots: who gets how many is all that decides who ends when. The work is bounded: after so
many ends that a preview would keep its reader waiting, the answer is that nobody can say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from scheduling.division import Decision
from scheduling.policies import Demand, shares_of

__all__ = ["Forecast", "Span", "Work", "forecast"]

#: Demands that are decided about in one play; fewer ends are played where more jobs take part.
_MAX_DECIDED = 12_000
_MIN_ENDS, _MAX_ENDS = 3, 500


@dataclass(frozen=True)
class Work:
    """What is left of a training, as it or earlier ones tell: at least and at most."""

    #: If twice the GPUs made it twice as fast.
    gpu_seconds: tuple[float, float]
    #: If more GPUs did not help.
    seconds: tuple[float, float]

    def rate(self, slots: int, *, quick: bool) -> float:
        """Which part of it is done in a second: the better of the two assumptions, or the worse."""
        if quick:
            return max(slots / self.gpu_seconds[0], 1 / self.seconds[0])
        return min(slots / self.gpu_seconds[1], 1 / self.seconds[1])


@dataclass(frozen=True)
class Span:
    """Seconds from now. `latest` is None where no end of the wait can be told."""

    earliest: float
    latest: float | None


@dataclass(frozen=True)
class Forecast:
    #: None: nobody can say.
    start: Span | None
    end: Span | None


def forecast(decision: Decision, job: int, works: Mapping[int, Work]) -> Forecast:
    """`works` lacks the jobs of which nobody knows how long they take: they are taken to go on for good."""
    quick = _play(decision, job, works, quick=True)
    slow = _play(decision, job, works, quick=False)
    return Forecast(_span(quick[0], slow[0]), _span(quick[1], slow[1]))


def _span(quick: float | None, slow: float | None) -> Span | None:
    return None if quick is None else Span(quick, None if slow is None else max(quick, slow))


def _play(decision: Decision, job: int, works: Mapping[int, Work], *, quick: bool) -> tuple[float | None, float | None]:
    """Seconds from now to the job's start and to its end."""
    demands = {demand.id: demand for demand in decision.demands}
    left = dict.fromkeys(demands, 1.0)
    start, now = None, 0.0
    shares: Mapping[int, int] = decision.shares
    for ends in range(max(_MIN_ENDS, min(_MAX_ENDS, _MAX_DECIDED // max(1, len(demands))))):
        if ends:
            shares = shares_of(decision.pool.group, demands.values(), decision.capacity)
        if shares.get(job) and start is None:
            start = now
        rates = {i: works[i].rate(share, quick=quick) for i, share in shares.items() if share and i in works}
        if not rates:
            break
        seconds, first = min((left[i] / rate, i) for i, rate in rates.items())
        now += seconds
        if first == job:
            return start, now
        for i, rate in rates.items():
            left[i] = max(0.0, left[i] - rate * seconds)
        del demands[first]
        demands = {i: _served(demand, shares.get(i, 0)) for i, demand in demands.items()}
    return start, None


def _served(demand: Demand, share: int) -> Demand:
    if demand.held == share and demand.running == (share > 0):
        return demand
    return replace(demand, running=share > 0, held=share)
