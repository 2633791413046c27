"""History of each job's GPUs, reduced to few enough points for a browser however many changes there were."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F

from core.charts import Band, Step
from core.roles import Asking, is_cluster_admin
from jobs.gpu_time import MINUTE, to_ms
from jobs.messages import text_of
from jobs.models import AllocationPoint, InstanceGroup, Job
from jobs.queries.gpu_status import held_since
from jobs.queries.groups import deployment
from jobs.queries.jobs import held_before, visible_jobs
from jobs.words import ANOTHER_USERS_TRAINING
from usage.claim_intervals import first_held, last_held
from workers.models import Host, Slot
from workers.queries import capacity_since

__all__ = ["WINDOWS", "Change", "Trace", "all_changes", "cluster_trace", "first_window", "means", "summed", "trace_of"]


#: (words, minutes) of each window that a page offers.
WINDOWS = [("5 min", 5), ("15 min", 15), ("1 h", 60), ("6 h", 360), ("24 h", 1440)]
_FIRST_AT_MOST = 60
#: Limits of what a browser redraws in time: bands beyond them become one, changes beyond them become means.
MAX_BANDS = 7
MAX_STEPS = 600
BUCKETS = 288
#: Highest number of changes that are read; with more, the trace begins later.
MAX_CHANGES = 100_000


@dataclass(frozen=True)
class Change:
    job: int
    at: datetime
    slots: int
    text: str = ""
    pause_ms: float | None = None


@dataclass(frozen=True)
class Trace:
    start: datetime
    end: datetime
    #: GPUs of the present hosts.
    capacity: int
    #: Capacity over time, from the start or the beginning of its history; empty for an instance group.
    capacities: Sequence[Step]
    #: GPUs that were held, by `jobs.queries.gpu_status`; those in no band were starting or ending.
    held: Sequence[Step]
    bands: Sequence[Band]
    #: Newest changes, with their reasons if the viewer may read them.
    changes: Sequence[Change]
    #: Job -> its name, for jobs that the viewer may see.
    labels: Mapping[int, str]
    #: Number of all changes in the window.
    count: int
    #: Seconds that each point averages over; None: each point is a change.
    mean_seconds: float | None


def cluster_trace(user: Asking, end: datetime, minutes: int, group: InstanceGroup | None = None) -> Trace:
    """Return the trace of the last `minutes` before `end`, in at most nine queries.

    group: restrict the trace to the trainings of this group; the capacity is its resource group's.
    """
    start = end - timedelta(minutes=minutes)
    if group is not None:
        return trace_of(user, start, end, {"job__instance_group": group}, deployment(group.resource_group).slots)
    present = Slot.objects.filter(index__lt=F("host__ngpus")).exclude(host__state=Host.State.OFFLINE)
    trace = trace_of(user, start, end, {}, present.count())
    return replace(trace, capacities=_capacities(trace.start))


def trace_of(user: Asking, start: datetime, end: datetime, of_jobs: Mapping[str, Any], capacity: int) -> Trace:
    """Return the trace of some jobs, in at most seven queries, without past capacities.

    of_jobs: conditions of a query of rows that have a `job`.
    """
    changes = _changes(start, of_jobs)
    if len(changes) == MAX_CHANGES:
        start = changes[0].at
    had = [Change(*row) for row in held_before(start).filter(**of_jobs).values_list("job_id", "at", "slots")]
    by_job: dict[int, list[Change]] = defaultdict(list)
    for change in [*had, *changes]:
        by_job[change.job].append(change)
    areas = {job: _area(steps, start, end) for job, steps in by_job.items()}
    shown = sorted(areas)
    if len(areas) > MAX_BANDS:
        own = set(Job.objects.filter(pk__in=areas, owner=user.pk).values_list("pk", flat=True))
        shown = sorted(areas, key=lambda job: (job not in own, -areas[job], job))[: MAX_BANDS - 1]
    others = sorted(areas.keys() - set(shown))
    newest = changes[-MAX_STEPS:]
    named = {*shown, *(change.job for change in newest)}
    labels = dict(visible_jobs(user).filter(pk__in=named).values_list("pk", "name"))
    bands = [
        Band(job, labels.get(job, ANOTHER_USERS_TRAINING), _steps(by_job[job], job in labels)) for job in sorted(shown)
    ]
    if others:
        rest = summed([by_job[job] for job in others])
        bands.append(Band(0, f"{len(others)} others", _steps(rest, False)))
    mean_seconds = None
    held = held_since(start, MAX_CHANGES, of_jobs)
    if max(len(changes), len(held)) > MAX_STEPS:
        mean_seconds = (end - start).total_seconds() / BUCKETS
        held = means(held, start, end)
        bands = [Band(band.job, band.label, means(band.steps, start, end)) for band in bands]
    readable = [change if change.job in labels else replace(change, text="") for change in newest]
    return Trace(start, end, capacity, [], held, bands, readable, labels, len(changes), mean_seconds)


def first_window(end: datetime) -> int:
    """Return the shortest window, in minutes, since the first GPU was held; at most an hour, or, if no GPU was held in
    that hour, the shortest one that reaches back to a held GPU."""
    first = first_held()
    age = (to_ms(end) - first) / MINUTE if first is not None else 0
    if age <= _FIRST_AT_MOST:
        return next(minutes for _, minutes in WINDOWS if age <= minutes)
    idle = (to_ms(end) - (last_held() or to_ms(end))) / MINUTE
    return next((minutes for _, minutes in WINDOWS if max(idle, _FIRST_AT_MOST) <= minutes), _FIRST_AT_MOST)


def all_changes(user: Asking, start: datetime) -> Iterator[tuple[Change, str]]:
    """Yield every change since `start` and its job's name, as far as the viewer may read them; the newest first."""
    points = AllocationPoint.objects.filter(at__gte=start).order_by("-at", "-id")
    mine = None if is_cluster_admin(user) else user.pk
    rows = points.values_list("job_id", "job__name", "job__owner_id", "at", "slots", "reason_params", "pause_ms")
    for job, name, owner, at, slots, params, pause_ms in rows.iterator(chunk_size=2000):
        visible = mine is None or owner == mine
        text = text_of(params) if visible else ""
        yield Change(job, at, slots, text, pause_ms), name if visible else ANOTHER_USERS_TRAINING


def summed(parts: Iterable[Sequence[Change]]) -> list[Change]:
    """Return the sum of several jobs: a change whenever one of them changes."""
    moves: list[tuple[datetime, int]] = []
    for part in parts:
        before = 0
        for change in part:
            moves.append((change.at, change.slots - before))
            before = change.slots
    total, found = 0, []
    for at, move in sorted(moves):
        total += move
        found.append(Change(0, at, total))
    return found


def means(steps: Sequence[Step], start: datetime, end: datetime, buckets: int = BUCKETS) -> list[Step]:
    """Return the mean height in each of `buckets` equal parts of the time."""
    width = (end - start) / buckets
    found, place, height = [], 0, 0.0
    for number in range(buckets):
        first, last = start + number * width, start + (number + 1) * width
        at, area = first, 0.0
        while place < len(steps) and steps[place].at < last:
            moment = max(steps[place].at, first)
            area += height * (moment - at).total_seconds()
            at, height, place = moment, steps[place].slots, place + 1
        area += height * (last - at).total_seconds()
        found.append(Step(first, round(area / width.total_seconds(), 3)))
    return found


def _changes(start: datetime, of_jobs: Mapping[str, Any]) -> list[Change]:
    """Return the changes, the oldest first. Only the newest have a text: no others are listed singly."""
    points = AllocationPoint.objects.filter(at__gte=start, **of_jobs).order_by("-at", "-id")
    rows = points.values_list("pk", "job_id", "at", "slots", "pause_ms")[:MAX_CHANGES]
    reasons = dict(points.values_list("pk", "reason_params")[:MAX_STEPS])
    changes = [Change(job, at, slots, text_of(reasons.get(pk, {})), pause_ms) for pk, job, at, slots, pause_ms in rows]
    return changes[::-1]


def _area(steps: Sequence[Change], start: datetime, end: datetime) -> float:
    ends = [*(step.at for step in steps[1:]), end]
    return sum(
        step.slots * max(0.0, (min(until, end) - max(step.at, start)).total_seconds())
        for step, until in zip(steps, ends, strict=True)
    )


def _steps(changes: Iterable[Change], readable: bool) -> list[Step]:
    return [Step(change.at, change.slots, change.text if readable else "", change.pause_ms) for change in changes]


def _capacities(start: datetime) -> list[Step]:
    before: dict[int, int] = {}
    steps, height = list[Step](), 0
    for host, at, slots in capacity_since(start).values_list("host", "at", "slots"):
        height += slots - before.get(host, 0)
        before[host] = slots
        steps.append(Step(at, height))
    earlier = [Step(start, step.slots) for step in steps if step.at <= start][-1:]
    return [*earlier, *(step for step in steps if step.at > start)][-MAX_STEPS:]
