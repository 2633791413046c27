"""Queue positions and expected starts of waiting trainings, according to the scheduler's newest plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.utils import timezone

from core.time import iso
from jobs.messages.spans import span_in_words, starts_in
from jobs.models import GroupQueue, Job, QueuedJob
from jobs.states import JobState
from scheduling.forecast import Span

__all__ = ["QueuePlace", "expected_start", "place_text", "short_start", "with_places"]

#: Seconds after its latest start at which a forecast is outdated: a running scheduler would have renewed it.
_OUTDATED_SECONDS = 60.0


@dataclass(frozen=True)
class QueuePlace:
    """Position of a waiting training in its group's queue."""

    #: 1: the next training to start.
    position: int
    #: Number of trainings in the queue.
    of: int
    #: Time of reading, to which `start` is relative.
    at: datetime
    #: Expected start; None: it cannot be predicted.
    start: Span | None


def with_places(jobs: Sequence[Job]) -> Sequence[Job]:
    """Set `place` on each job: None if the job does not wait, or no plan has decided about it. Returns the jobs."""
    now, places = timezone.now(), dict[int, QueuePlace]()
    if groups := {job.instance_group_id for job in jobs if job.state == JobState.PENDING}:
        wanted = {job.pk for job in jobs if job.state == JobState.PENDING}
        for queue in GroupQueue.objects.filter(group__in=groups):
            places |= _places(queue, wanted, now)
    for job in jobs:
        job.place = places.get(job.pk)  # type: ignore[attr-defined]
    return jobs


def _places(queue: GroupQueue, wanted: set[int], now: datetime) -> dict[int, QueuePlace]:
    queued = queue.queued()
    return {
        one.job: QueuePlace(position, len(queued), now, _start(one, now.timestamp()))
        for position, one in enumerate(queued, start=1)
        if one.job in wanted
    }


def _start(queued: QueuedJob, now: float) -> Span | None:
    if queued.earliest is None or (queued.latest is not None and queued.latest < now - _OUTDATED_SECONDS):
        return None
    return Span(max(0.0, queued.earliest - now), None if queued.latest is None else max(0.0, queued.latest - now))


def expected_start(job: Job) -> dict[str, str | None] | None:
    """Return the bounds of a job's start, after `with_places`; None if it cannot be predicted or does not wait."""
    place: QueuePlace | None = getattr(job, "place", None)
    if place is None or place.start is None:
        return None
    now, latest = place.at.timestamp(), place.start.latest
    return {
        "earliest": _moment(now + place.start.earliest),
        "latest": None if latest is None else _moment(now + latest),
    }


def _moment(seconds: float) -> str:
    return iso(datetime.fromtimestamp(seconds, UTC))


def place_text(job: Job) -> str:
    """Return a job's position and start as sentences, after `with_places`; "" if the job is in no queue."""
    place: QueuePlace | None = getattr(job, "place", None)
    if place is None:
        return ""
    where = (
        "It is the only one in the queue."
        if place.of == 1
        else f"It is number {place.position} of {place.of} in the queue."
    )
    if place.start is None and "absent" in job.reason_params:
        return f"{where} It starts once enough hosts are in service again."
    return f"{where} {starts_in(place.start)}"


def short_start(place: QueuePlace) -> str:
    """Return the start in a few words, for lists; "" if it cannot be predicted."""
    return "" if place.start is None else span_in_words(place.start)
