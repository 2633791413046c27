"""Storage of the queues of instance groups, by the leading scheduler after each plan that changes them.

The order is that of the newest plan. Expected starts come from a forecast, which takes longer than a plan: forecasts
are limited to 2 % of the time, and to queues whose plan or whose trainings' measurements have changed.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil, floor

from django.db import transaction

from jobs.control.durations import Length
from jobs.control.plans import lock_lead
from jobs.models import GroupQueue, InstanceGroup, QueuedJob
from scheduling.forecast import expected_starts
from scheduling.schedule import CycleResult
from scheduling.sharing.decision import Decision

__all__ = ["KnownLengths", "QueueWriter"]

#: Shortest time between forecasts: this many seconds, and this many times the duration of the last forecast.
_PAUSE_SECONDS = 5.0
_PAUSE_FACTOR = 50
#: Largest change of a start, in seconds, that is not written.
_TOLERANCE_SECONDS = 5


@dataclass(frozen=True)
class KnownLengths:
    """Estimated lengths of trainings, as of one moment."""

    by_job: Mapping[int, Length]
    at: datetime


@dataclass(frozen=True)
class _Premises:
    """Inputs of the forecast of a group's queue; a change makes the forecast stale."""

    queue: list[int]
    shares: Mapping[int, int]
    capacity: int
    measured_at: datetime


class QueueWriter:
    """Writer of queues: of those that differ from its last ones, and of all when this process takes the lead."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_forecast_at = clock()
        #: Epoch of the lead; the other fields are valid only under it.
        self._epoch: int | None = None
        self._written: dict[str, list[QueuedJob]] = {}
        self._premises: dict[str, _Premises] = {}
        self._forecast: dict[int, QueuedJob] = {}

    def write(self, result: CycleResult, known: KnownLengths, epoch: int) -> None:
        """Write the queues that follow from the plan of `result`. Raises LeadershipLost if another scheduler leads."""
        is_new = epoch != self._epoch
        if is_new:
            self._epoch, self._written, self._premises, self._forecast = epoch, {}, {}, {}
        queues = result.queues
        self._renew_forecast(result, queues, known)
        rows = {
            group: [self._forecast.get(job) or QueuedJob(job, None, None) for job in queue]
            for group, queue in queues.items()
        }
        changed = {group: row for group, row in rows.items() if not _is_close(row, self._written.get(group, []))}
        if is_new or changed or self._written.keys() - rows.keys():
            _store(changed, rows, epoch)
            self._written = {group: changed.get(group, self._written.get(group, [])) for group in rows}

    def _renew_forecast(self, result: CycleResult, queues: Mapping[str, list[int]], known: KnownLengths) -> None:
        stale = [
            (decision, premises)
            for decision, _ in result.groups
            if (queue := queues.get(decision.pool.group.name))
            and (premises := _Premises(queue, decision.shares, decision.capacity, known.at))
            != self._premises.get(decision.pool.group.name)
        ]
        if not stale or (begun := self._clock()) < self._next_forecast_at:
            return
        waiting = {job for queue in queues.values() for job in queue}
        self._forecast = {job: start for job, start in self._forecast.items() if job in waiting}
        for decision, premises in stale:
            self._premises[decision.pool.group.name] = premises
            self._forecast |= {start.job: start for start in _starts(decision, known)}
        ended = self._clock()
        self._next_forecast_at = ended + max(_PAUSE_SECONDS, _PAUSE_FACTOR * (ended - begun))


def _starts(decision: Decision, known: KnownLengths) -> Iterable[QueuedJob]:
    """Yield the expected start of each waiting job of the group, from the remaining work of the others."""
    at = decision.pool.at
    since = at - known.at.timestamp()
    held = {demand.id: demand.held for demand in decision.pool.demands if demand.running}
    works = {
        job: length.work.after(since, held[job]) if job in held else length.work for job, length in known.by_job.items()
    }
    starts = expected_starts(decision, works)
    for demand in decision.pool.demands:
        start = starts.get(demand.id)
        earliest = None if start is None else floor(at + start.earliest)
        latest = None if start is None or start.latest is None else ceil(at + start.latest)
        yield QueuedJob(demand.id, earliest, latest)


def _is_close(queue: list[QueuedJob], written: list[QueuedJob]) -> bool:
    return len(queue) == len(written) and all(map(_is_same, queue, written))


def _is_same(one: QueuedJob, written: QueuedJob) -> bool:
    if one is written:
        return True
    return (
        one.job == written.job
        and _moved_little(one.earliest, written.earliest)
        and _moved_little(one.latest, written.latest)
    )


def _moved_little(now: int | None, before: int | None) -> bool:
    if now is None or before is None:
        return now is before
    return abs(now - before) <= _TOLERANCE_SECONDS


@transaction.atomic
def _store(changed: Mapping[str, list[QueuedJob]], kept: Iterable[str], epoch: int) -> None:
    lock_lead(epoch)
    GroupQueue.objects.exclude(group__name__in=list(kept)).delete()
    ids = InstanceGroup.objects.filter(name__in=changed).values_list("name", "pk")
    rows = [GroupQueue(group_id=pk, jobs=changed[name]) for name, pk in ids]
    GroupQueue.objects.bulk_create(rows, update_conflicts=True, unique_fields=["group"], update_fields=["jobs"])
