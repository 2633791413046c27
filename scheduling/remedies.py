"""Changes that would give a job more slots. Each is verified by running the scheduler on a changed snapshot."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from scheduling.explain.case import label
from scheduling.plan import JobPlan
from scheduling.policies.demand import Demand
from scheduling.preview import with_changes, without_jobs
from scheduling.schedule import run_cycle
from scheduling.snapshot import JobView, Snapshot

__all__ = ["Remedy", "remedies"]

#: Highest priority that the database accepts.
MAX_PRIORITY = 10_000
_Setting = Literal["min_slots", "max_slots", "priority"]
#: Maximum number of other jobs whose end is tried.
_MAX_OTHERS = 3


@dataclass(frozen=True)
class Remedy:
    #: The setting of the job that would change, or "end" of another job.
    kind: Literal["min_slots", "max_slots", "priority", "end", "hosts"]
    #: The new value; for an end the id of the other job; for hosts the number of their slots.
    value: int
    #: The value now; for an end the id of the other job; for hosts 0.
    former: int
    #: Number of slots in its next target; it would get `slots` of them at once.
    target: int
    slots: int
    #: Its target now.
    before: int
    #: Whether a waiting job would start in the next cycle, on free slots.
    starts_now: bool
    #: For an end: how the other job is called; see `scheduling.explain.case.label`.
    other: Mapping[str, str] | None = None
    #: Queue positions, for a change that gives no slots yet: the new one, the present one, and the number of waiting
    #: jobs.
    places: tuple[int, int, int] | None = None
    #: Hosts that would have to return to service, each with its state; see `SlotView.out`.
    hosts: tuple[tuple[str, str], ...] = ()


def remedies(snapshot: Snapshot, job: int) -> tuple[Remedy, ...]:
    """Return remedies in the order in which a person would try them; empty where nothing helps or is needed."""
    me = next(view for view in snapshot.jobs if view.id == job)
    line = _line(snapshot, job)
    found = [
        *_return_hosts(snapshot, me, line),
        _lower_minimum(snapshot, me, line),
        _raise_priority(snapshot, me, line) or _move_up(snapshot, me, line),
        _raise_maximum(snapshot, me, line),
        *_ends(snapshot, me, line),
    ]
    return tuple(remedy for remedy in found if remedy is not None)


def _lower_minimum(snapshot: Snapshot, me: JobView, line: JobPlan) -> Remedy | None:
    """Find the largest minimum with which it would start now, or else with which other jobs give back what it needs."""
    if line.slots or not me.elastic:
        return None
    after = partial(_after, snapshot, me, "min_slots")
    lower = range(me.min_slots - 1, 0, -1)
    value = _first(lower, lambda minimum: bool(after(minimum).slots))
    if value is None and not line.target:
        value = _first(lower, lambda minimum: after(minimum).target > 0)
    return None if value is None else _remedy("min_slots", value, me.min_slots, line, after(value))


def _raise_priority(snapshot: Snapshot, me: JobView, line: JobPlan) -> Remedy | None:
    """Find the lowest priority with which it gets more slots."""
    if line.target >= me.max_slots:
        return None
    after = partial(_after, snapshot, me, "priority")
    value = _first(range(me.priority + 1, MAX_PRIORITY + 1), lambda value: after(value).target > line.target)
    return None if value is None else _remedy("priority", value, me.priority, line, after(value))


def _move_up(snapshot: Snapshot, me: JobView, line: JobPlan) -> Remedy | None:
    """Find the least priority that moves it as far ahead in line as it can, where none starts it now."""
    waiting = _line_of(snapshot, me)
    if line.target or all(demand.id != me.id for demand in waiting):
        return None
    value = min(MAX_PRIORITY, waiting[0].priority + 1)
    raised = with_changes(snapshot, me.id, priority=value)
    place, before = _place(_line_of(raised, me), me), _place(waiting, me)
    if value <= me.priority or place >= before or not _starts_once_others_end(raised, me):
        return None
    return Remedy("priority", value, me.priority, 0, 0, 0, starts_now=False, places=(place, before, len(waiting)))


def _starts_once_others_end(snapshot: Snapshot, me: JobView) -> bool:
    # A job that waits may still hold slots that it is giving back.
    holders = {slot.held_by for slot in snapshot.slots if slot.held_by is not None} - {me.id}
    return bool(_line(without_jobs(snapshot, holders), me.id).slots)


def _line_of(snapshot: Snapshot, me: JobView) -> list[Demand]:
    return [demand for demand in run_cycle(snapshot).decision(me.id).pool.demands if not demand.running]


def _place(waiting: list[Demand], me: JobView) -> int:
    return 1 + next(number for number, demand in enumerate(waiting) if demand.id == me.id)


def _raise_maximum(snapshot: Snapshot, me: JobView, line: JobPlan) -> Remedy | None:
    """Raise the maximum to what it would get if it asked for all there are."""
    if line.target < me.max_slots or not me.elastic or me.newcomers_fail or me.is_idle:
        return None
    most = _after(snapshot, me, "max_slots", len(snapshot.slots)).target
    if most <= me.max_slots:
        return None
    after = _after(snapshot, me, "max_slots", most)
    return _remedy("max_slots", most, me.max_slots, line, after) if after.target > line.target else None


def _after(snapshot: Snapshot, me: JobView, kind: _Setting, value: int) -> JobPlan:
    return _line(with_changes(snapshot, me.id, **{kind: value}), me.id)


def _remedy(kind: _Setting | Literal["end", "hosts"], value: int, former: int, line: JobPlan, after: JobPlan) -> Remedy:
    starts_now = not line.slots and bool(after.slots)
    return Remedy(kind, value, former, after.target, len(after.slots), line.target, starts_now)


def _ends(snapshot: Snapshot, me: JobView, line: JobPlan) -> Iterator[Remedy]:
    """Try the end of those jobs of its group that hold most slots."""
    if line.target >= me.max_slots:
        return
    holders = [slot.held_by for slot in snapshot.slots]
    others = [view for view in snapshot.jobs if view.group == me.group and view.id != me.id and view.id in holders]
    for other in sorted(others, key=lambda view: (-holders.count(view.id), view.id))[:_MAX_OTHERS]:
        after = _line(without_jobs(snapshot, {other.id}), me.id)
        if after.target > line.target:
            yield replace(_remedy("end", other.id, other.id, line, after), other=label(me, other))


def _return_hosts(snapshot: Snapshot, me: JobView, line: JobPlan) -> Iterator[Remedy]:
    """Try the return of the hosts out of service for a job that waits: of one at a time, or else of all together."""
    if line.target:
        return
    resource_group = next(group.resource_group for group in snapshot.groups if group.name == me.group)
    away = [slot for slot in snapshot.slots if not slot.claimable and resource_group in slot.resource_groups]
    hosts = sorted({slot.ref.host for slot in away})
    found = [_with_hosts(snapshot, me, line, [host]) for host in hosts[:_MAX_OTHERS]]
    if not any(found) and len(hosts) > 1:
        found = [_with_hosts(snapshot, me, line, hosts)]
    yield from (remedy for remedy in found if remedy is not None)


def _with_hosts(snapshot: Snapshot, me: JobView, line: JobPlan, hosts: Collection[str]) -> Remedy | None:
    back = [slot for slot in snapshot.slots if not slot.claimable and slot.ref.host in hosts]
    slots = (replace(slot, claimable=True) if slot.ref.host in hosts else slot for slot in snapshot.slots)
    after = _line(replace(snapshot, slots=tuple(slots)), me.id)
    states = tuple(sorted({(slot.ref.host, slot.out) for slot in back}))
    return replace(_remedy("hosts", len(back), 0, line, after), hosts=states) if after.target else None


def _line(snapshot: Snapshot, job: int) -> JobPlan:
    return run_cycle(snapshot).line(job)


def _first(values: range, holds: Callable[[int], bool]) -> int | None:
    """Find by bisection the first value that works, assuming that later ones do too; the returned value was
    verified."""
    if not values or not holds(values[-1]):
        return None
    return values[bisect_left(values, True, hi=len(values) - 1, key=holds)]
