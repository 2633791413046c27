"""What would change what a job gets, each found by the scheduler's own function on a changed snapshot: no guesses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from scheduling.plan import JobPlan
from scheduling.preview import with_changes
from scheduling.schedule import decided
from scheduling.snapshot import JobView, Snapshot
from scheduling.wording import gpus, label

__all__ = ["Remedy", "remedies"]

#: As the database allows.
MAX_PRIORITY = 10_000
#: Of other jobs, how many ends are tried.
_MAX_OTHERS = 3


@dataclass(frozen=True)
class Remedy:
    #: What of the job would change, or "end" of another one.
    kind: Literal["min_slots", "max_slots", "priority", "end"]
    #: The new value; for an end the number of the other job.
    value: int
    #: How many slots it would then have.
    target: int
    #: A job that waits would start in the next cycle, on slots that are free.
    starts_now: bool
    text: str


def remedies(snapshot: Snapshot, job: int) -> tuple[Remedy, ...]:
    """In the order in which a person would try them; empty where it has all that it asks for or nothing helps."""
    me = next(view for view in snapshot.jobs if view.id == job)
    line = _line(snapshot, job)
    found = [
        _lower_minimum(snapshot, me, line),
        _raise_priority(snapshot, me, line),
        _raise_maximum(snapshot, me, line),
        *_ends(snapshot, me, line),
    ]
    return tuple(remedy for remedy in found if remedy is not None)


def _lower_minimum(snapshot: Snapshot, me: JobView, line: JobPlan) -> Remedy | None:
    """The largest minimum with which it would start now, or else with which others give back what it needs."""
    if line.slots or not me.elastic:
        return None

    def after(minimum: int) -> JobPlan:
        return _line(with_changes(snapshot, me.id, min_slots=minimum), me.id)

    value = _first(1, me.min_slots - 1, lambda minimum: bool(after(minimum).slots), -1)
    if value is None and not line.target:
        value = _first(1, me.min_slots - 1, lambda minimum: after(minimum).target > 0, -1)
    if value is None:
        return None
    then = after(value)
    text = f"A minimum of {gpus(value)} instead of {me.min_slots}: {_gets(line, then)}."
    return Remedy("min_slots", value, then.target, _starts(line, then), text)


def _raise_priority(snapshot: Snapshot, me: JobView, line: JobPlan) -> Remedy | None:
    """The least priority with which it gets more."""

    def helps(priority: int) -> bool:
        return _line(with_changes(snapshot, me.id, priority=priority), me.id).target > line.target

    value = _first(me.priority + 1, MAX_PRIORITY, helps, 1) if line.target < me.max_slots else None
    if value is None:
        return None
    after = _line(with_changes(snapshot, me.id, priority=value), me.id)
    text = f"A priority of {value} instead of {me.priority}: {_gets(line, after)}."
    return Remedy("priority", value, after.target, _starts(line, after), text)


def _raise_maximum(snapshot: Snapshot, me: JobView, line: JobPlan) -> Remedy | None:
    """As many as it would get if it asked for all there are."""
    if line.target < me.max_slots or not me.elastic:
        return None
    most = _line(with_changes(snapshot, me.id, max_slots=len(snapshot.slots)), me.id).target
    if most <= me.max_slots:
        return None
    after = _line(with_changes(snapshot, me.id, max_slots=most), me.id)
    text = f"A maximum of {gpus(most)} instead of {me.max_slots}: {_gets(line, after)}."
    return Remedy("max_slots", most, after.target, False, text) if after.target > line.target else None


def _ends(snapshot: Snapshot, me: JobView, line: JobPlan) -> Iterator[Remedy | None]:
    """The end of the jobs of its group that hold most."""
    if line.target >= me.max_slots:
        return
    holders = [slot.held_by for slot in snapshot.slots]
    others = [view for view in snapshot.jobs if view.group == me.group and view.id != me.id and view.id in holders]
    for other in sorted(others, key=lambda view: (-holders.count(view.id), view.id))[:_MAX_OTHERS]:
        after = _line(_without(snapshot, other.id), me.id)
        if after.target > line.target:
            name = label(me, other)
            yield Remedy(
                "end", other.id, after.target, _starts(line, after), f"Once {name} has ended: {_gets(line, after)}."
            )


def _without(snapshot: Snapshot, job: int) -> Snapshot:
    slots = tuple(
        replace(slot, held_by=None, vacating=False) if slot.held_by == job else slot for slot in snapshot.slots
    )
    return replace(snapshot, slots=slots, jobs=tuple(view for view in snapshot.jobs if view.id != job))


def _gets(line: JobPlan, after: JobPlan) -> str:
    if _starts(line, after):
        return f"it would start now, on {len(after.slots)}" + (
            "" if len(after.slots) == after.target else f" of {after.target}"
        )
    if not line.target:
        return f"it would get {gpus(after.target)}, once they are given back"
    return f"it would have {gpus(after.target)} instead of {line.target}"


def _starts(line: JobPlan, after: JobPlan) -> bool:
    return not line.slots and bool(after.slots)


def _line(snapshot: Snapshot, job: int) -> JobPlan:
    return decided(snapshot).line(job)


def _first(low: int, high: int, holds: Callable[[int], bool], direction: Literal[1, -1]) -> int | None:
    """The least (1) or largest (-1) number that holds, if more of it only helps; at any rate one that was seen to."""
    if low > high:
        return None
    best = high if direction == 1 else low
    if not holds(best):
        return None
    while low < high:
        middle = (low + high + (direction == -1)) // 2
        if holds(middle):
            best = middle
            low, high = (low, middle) if direction == 1 else (middle, high)
        else:
            low, high = (middle + 1, high) if direction == 1 else (low, middle - 1)
    return best
