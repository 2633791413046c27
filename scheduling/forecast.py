"""Forecast of starts and ends if no job is submitted: the group's policy, simulated from one end to the next.

The simulation counts slots and does not place them, because only the counts decide when a job ends. The number of
simulated ends is bounded, to keep a preview fast; beyond it, the forecast is unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import ceil, inf

from scheduling.policies.demand import Demand
from scheduling.policies.shares import shares_of
from scheduling.sharing.decision import Decision
from scheduling.snapshot import JobView, Snapshot

__all__ = ["Forecast", "Span", "Work", "expected_starts", "forecast", "with_forecasts"]

#: Safety factor: a single earlier training does not show how much durations vary.
_MARGIN = 1.25

#: Minimum assumed duration of a training in seconds; keeps rates finite.
_NEARLY_DONE = 1e-3

#: Maximum number of demands decided in one simulation.
_MAX_DECIDED = 40_000


@dataclass(frozen=True)
class Work:
    """Remaining work of a training, by its own or earlier measures: at least and at most."""

    #: The remaining work if the training scales linearly with GPUs.
    gpu_seconds: tuple[float, float]
    #: The remaining work if additional GPUs do not help.
    seconds: tuple[float, float]

    def rate(self, slots: int, *, quick: bool) -> float:
        """Return the part that is done in a second: the better of the two assumptions, or the worse."""
        if quick:
            return max(slots / self.gpu_seconds[0], 1 / self.seconds[0])
        return min(slots / self.gpu_seconds[1], 1 / self.seconds[1])

    def after(self, seconds: float, slots: int) -> "Work":
        """Return the work that is left after so many seconds on so many slots."""
        (least_gpu, most_gpu), (least, most) = self.gpu_seconds, self.seconds
        used = seconds * slots
        return Work(
            (max(_NEARLY_DONE, least_gpu - used), max(_NEARLY_DONE, most_gpu - used)),
            (max(_NEARLY_DONE, least - seconds), max(_NEARLY_DONE, most - seconds)),
        )


@dataclass(frozen=True)
class Span:
    """Seconds from now. `latest` is None where no end of the wait can be told."""

    earliest: float
    latest: float | None


@dataclass(frozen=True)
class Forecast:
    #: Span in which the job starts; None: unknown.
    start: Span | None
    end: Span | None


def with_forecasts(snapshot: Snapshot, works: Mapping[int, Work], at: float) -> Snapshot:
    """Return the snapshot with what is forecast of its jobs, where that is sooner than their limits.

    `works`: what is left at `at` (Unix seconds) of jobs that run, as far as they tell by themselves, and all of jobs
    that wait. The most that is told counts, on the least that a job trains on, and `_MARGIN` times of that, in whole
    minutes: what changes with each step would change reasons each second.
    """
    return replace(snapshot, jobs=tuple(_informed(job, works.get(job.id), at) for job in snapshot.jobs))


def _informed(job: JobView, work: Work | None, at: float) -> JobView:
    if work is None:
        return job
    minutes = ceil(_MARGIN / work.rate(job.min_slots, quick=False) / 60)
    lasts = min(60.0 * minutes, inf if job.lasts is None else job.lasts)
    if job.state == "PENDING":
        return replace(job, lasts=lasts)
    ends_at = 60.0 * ceil((at + 60 * minutes) / 60)
    return replace(job, ends_at=min(ends_at, inf if job.ends_at is None else job.ends_at))


def forecast(decision: Decision, job: int, works: Mapping[int, Work]) -> Forecast:
    """Return when the job starts and ends if no other is submitted.

    Jobs that `works` lacks take an unknown time: at the earliest they are over at once, at the latest at their limit;
    without a limit, they are taken to go on for good.
    """
    quick, slow = _play(decision, works, quick=True, until=job), _play(decision, works, quick=False, until=job)
    start = _reserved(decision, job, _span(quick.starts.get(job), slow.starts.get(job)))
    known = job in works or None
    return Forecast(start, known and _span(quick.ends.get(job), slow.ends.get(job)))


def expected_starts(decision: Decision, works: Mapping[int, Work]) -> dict[int, Span]:
    """Return when each waiting job of the group starts. The missing ones: nobody can say."""
    waiting = [demand.id for demand in decision.pool.demands if not demand.running]
    if not waiting:
        return {}
    quick, slow = (_at_its_pace(_play(decision, works, quick=quick), decision) for quick in (True, False))
    found = {job: _reserved(decision, job, _span(quick.get(job), slow.get(job))) for job in waiting}
    return {job: start for job, start in found.items() if start is not None}


def _span(quick: float | None, slow: float | None) -> Span | None:
    return None if quick is None else Span(quick, None if slow is None else max(quick, slow))


def _reserved(decision: Decision, job: int, start: Span | None) -> Span | None:
    """Bound a start by the job's reservation in the decision."""
    if decision.pool.views[job].one_host:
        # The simulation only counts slots, so it cannot tell when enough of them are on one host.
        return Span(start.earliest, None) if start is not None and start.latest else start
    for reservation in (decision.reservation, decision.shared_reservation):
        if reservation is not None and reservation.job == job and reservation.at is not None:
            latest = max(0.0, reservation.at - decision.pool.at)
            if start is None:
                return Span(0.0, latest)
            return Span(min(start.earliest, latest), latest if start.latest is None else min(start.latest, latest))
    return start


@dataclass
class _Played:
    """Seconds from now at which jobs start and end."""

    starts: dict[int, float] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)
    #: Whether the queue was too long to be simulated to its end.
    is_cut: bool = False


def _play(decision: Decision, works: Mapping[int, Work], *, quick: bool, until: int | None = None) -> _Played:
    """Simulate from one end to the next; stop at the end of the job `until`, if given."""
    line = _Line(decision)
    left = dict.fromkeys((demand.id for demand in decision.demands), 1.0)
    requested = {demand.id: demand for demand in decision.demands}
    #: When those that train reach their limits, in seconds from now.
    limits = {d.id: d.ends_at - line.began for d in decision.demands if d.running and d.ends_at is not None}
    played, now, work = _Played(), 0.0, 0
    shares: Mapping[int, int] = decision.shares
    while work < _MAX_DECIDED:
        if played.ends:
            demands = line.next_demands()
            work += len(demands)
            shares = shares_of(decision.pool.group, demands, decision.capacity, now=line.began + now)
        for job, share in shares.items():
            if share:
                played.starts.setdefault(job, now)
                if (
                    job not in limits
                    and (lasts := requested[job].lasts) is not None
                    and (now or not requested[job].running)
                ):
                    limits[job] = now + lasts
        for job in limits.keys() - {job for job, share in shares.items() if share}:
            del limits[job]  # a stopped job's limit restarts at its next start
        rates = {
            i: works[i].rate(max(1, share // decision.pool.views[i].per_gpu), quick=quick)
            for i, share in shares.items()
            if share and i in works
        }
        ends = {i: left[i] / rate for i, rate in rates.items()}
        for i, limit in limits.items():
            # A training of unknown length may be over at once.
            ends[i] = min(ends.get(i, 0.0 if quick else inf), max(0.0, limit - now))
        if not ends:
            break
        seconds, first = min((seconds, i) for i, seconds in ends.items())
        now += seconds
        played.ends[first] = now
        if first == until:
            break
        limits.pop(first, None)
        for i, rate in rates.items():
            left[i] = max(0.0, left[i] - rate * seconds)
        line.serve(shares, first, now - seconds)
    else:
        played.is_cut = True
    return played


def _at_its_pace(played: _Played, decision: Decision) -> dict[int, float]:
    """The starts; those of a line that was too long to be played follow as quickly as the ones before them did."""
    starts = dict(played.starts)
    able = [demand.id for demand in decision.demands if not demand.running and demand.min_slots <= decision.capacity]
    reached = [starts[job] for job in able if job in starts]
    if played.is_cut and reached:
        pace, last = max(reached) / len(reached), max(reached)
        later = (job for job in able if job not in starts)
        starts |= {job: last + number * pace for number, job in enumerate(later, start=1)}
    return starts


class _Line:
    """The jobs that have not ended, in the order in which they are served."""

    def __init__(self, decision: Decision) -> None:
        #: Unix seconds.
        self.began = decision.pool.at
        self._capacity = decision.capacity
        #: Under priority with preemption lower ones take what a higher one leaves, so each priority has its own line.
        self._by_level = decision.pool.group.policy == "priority" and decision.pool.group.preemption
        self._order = {demand.id: place for place, demand in enumerate(decision.demands)}
        self._running = {demand.id: demand for demand in decision.demands if demand.running}
        self._waiting: dict[int, dict[int, Demand]] = {}
        for demand in decision.demands:
            if not demand.running and self._fits(demand):
                self._level(demand)[demand.id] = demand

    def serve(self, shares: Mapping[int, int], ended: int, at: float) -> None:
        """Apply the shares decided after an end; stopped jobs return to their place in the queue.

        `at`: seconds from the beginning, when the shares began to count.
        """
        for level in self._waiting.values():
            for job in shares.keys() & level.keys():
                self._running[job] = level.pop(job)
        self._running.pop(ended, None)
        for job, demand in list(self._running.items()):
            self._running[job] = _served(demand, shares.get(job, 0), self.began + at)
            if not shares.get(job):
                self._wait_again(self._running.pop(job))

    def next_demands(self) -> list[Demand]:
        """Return the next demands to decide: each job needs at least one slot, so at most as many as there are
        slots."""
        found = list(self._running.values())
        for level in self._waiting.values():
            found += islice(level.values(), self._capacity + 1)
        return sorted(found, key=lambda demand: self._order[demand.id])

    def _level(self, demand: Demand) -> dict[int, Demand]:
        return self._waiting.setdefault(demand.priority if self._by_level else 0, {})

    def _fits(self, demand: Demand) -> bool:
        return demand.min_slots <= self._capacity

    def _wait_again(self, demand: Demand) -> None:
        if not self._fits(demand):
            return
        level = self._level(demand)
        level[demand.id] = demand
        in_order = sorted(level.items(), key=lambda item: self._order[item[0]])
        level.clear()
        level.update(in_order)


def _served(demand: Demand, share: int, now: float) -> Demand:
    if demand.held == share and demand.running == (share > 0):
        return demand
    return replace(demand, running=share > 0, held=share, ends_at=demand.ends(now) if share else None)
