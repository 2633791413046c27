"""Reservations: what the first in line is to have that cannot start now, and who may use it until then.

The first job of a line that waits and would fit has a reservation: as many slots as it needs at once, from the moment
at which so many are there at the latest, by what is known of how long the others take. Whoever is behind it may start
before it only where that moment stays as it is:

- it is over by then, by its limit or by what is forecast of it at the most;
- or so many slots are left beside the reservation;
- or it is elastic, its group takes from running jobs, and it gives way: it is stopped, with a checkpoint, for this one
  job. What an elastic job has beyond its minimum never counts: it is taken back at any time.

The end of a job without limit and forecast is unknown. Where the first in line needs slots of such a job of fixed
size, only jobs that give way start before it. Where elastic trainings of unknown end keep minimums that exclude it by
themselves, nothing that others do delays it, so any job that fits starts meanwhile. Jobs that started meanwhile do not
count as such trainings: once the last of these has ended, no further job overtakes the first in line but to give way.

A job that needs more at once than its instance group's part has its reservation of what all groups share: see
`scheduling.sharing.division`.

Slurm's `sched/backfill` (after EASY, Lifka 1995) does so by limits alone, with a reservation for each job; one for each
line lets more in, and is as firm for who is first. Kueue's `BestEffortFIFO` lets anybody overtake, which starves large
jobs, and its `StrictFIFO` nobody; KAI's scheduler lets anybody overtake whom it does not find enough for. Neither knows
how long a job takes, and neither can take slots from one that goes on, as elastic trainings can.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from scheduling.policies.demand import Commitment, Demand

__all__ = ["FILLS_AT_LEAST_SECONDS", "Reservation", "Rule", "committed_slots", "reserve"]

#: Shortest time for which a job is backfilled: starting and stopping it would take longer than it trains.
FILLS_AT_LEAST_SECONDS = 60.0

Rule = Literal["in_time", "beside", "gives_way", "meanwhile"]


@dataclass
class Reservation:
    """Reservation of one job, the first in line. It counts slots; which ones they are is found where they are shown."""

    job: int
    #: Number of slots that the job needs at once.
    slots: int
    #: Latest time (Unix seconds) at which so many slots are free. None: unknown.
    at: float | None
    #: Number of slots that are then left beside the reserved ones.
    beside: int
    #: Whether elastic jobs of unknown end keep so many slots that it could not start if all other jobs ended.
    waits_for_elastic: bool
    #: Jobs that start before it now -> the rule that lets them.
    filling: dict[int, Rule] = field(default_factory=dict)
    #: Running jobs that started before it, and are stopped for it.
    stopping: frozenset[int] = frozenset()
    #: Slots that it cannot have, whoever shrinks or gives way. None: all that others get.
    taken: int | None = None

    def admit(self, job: int, least: int, most: int, ends_at: float | None) -> int:
        """Return the slots that a job behind it may have until then, from `least` to `most`; 0: none. Counts them."""
        if self.at is not None and ends_at is not None and ends_at <= self.at:
            self.filling[job] = "in_time"
            return most
        if least <= self.beside:
            gets = min(most, self.beside)
            self.beside -= gets
            self.filling[job] = "beside"
            return gets
        if self.waits_for_elastic:
            self.filling[job] = "meanwhile"
            return most
        return 0

    @property
    def overtaking(self) -> dict[int, int]:
        """Jobs that start now and hold its slots when it could start -> the job with the reservation."""
        return {job: self.job for job, rule in self.filling.items() if rule in ("gives_way", "meanwhile")}

    def gives_way(self, job: int) -> bool:
        """Return whether the job is stopped for this one, once this one can start."""
        return job in self.stopping or self.filling.get(job) == "gives_way"

    def is_far(self, now: float) -> bool:
        """Return whether it is worth while to start somebody who is stopped again for it."""
        return self.at is None or self.at >= now + FILLS_AT_LEAST_SECONDS


def reserve(job: int, slots: int, committed: Iterable[Commitment], capacity: int) -> Reservation:
    """Reserve `slots` of `capacity` slots; `committed`: slots that others hold, each with its latest end."""
    free, ends, lasting = capacity, list[tuple[float, int]](), 0
    for count, ends_at, is_elastic in committed:
        free -= count
        if ends_at is not None and count:
            ends.append((ends_at, count))
        elif is_elastic:
            lasting += count
    ends.sort()
    at: float | None = None
    for ends_at, count in ends:
        if at is not None and ends_at > at:
            break
        free += count
        if at is None and free >= slots:
            at = ends_at
    beside, waits_for_elastic = 0 if at is None else free - slots, capacity - lasting < slots
    return Reservation(job, slots, at, beside, waits_for_elastic)


def committed_slots(
    line: Sequence[Demand], given: Mapping[int, int], first: Demand, now: float
) -> Iterator[Commitment]:
    """Yield the slots of each other job that gets any, with the time at which it holds them at the latest.

    Jobs ahead of the first waiting one count with all that they ask for, because they grow before it starts.
    """
    is_before = True
    for demand in line:
        is_before = is_before and demand is not first
        if demand.id in given:
            has = given[demand.id]
            yield demand.commits(max(has, demand.max_slots) if is_before else has, now, first.id)
