"""Queue positions and expected starts of waiting trainings, as the scheduler's newest plan left them."""

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

#: The scheduler renews its forecasts. One whose latest start is past for so long comes from a scheduler that stands
#: still, and says nothing any more.
_OUTDATED_SECONDS = 60.0


@dataclass(frozen=True)
class QueuePlace:
    """The place of a waiting training in its group's queue."""

    #: 1: the next to start.
    position: int
    #: Number of trainings in the queue.
    of: int
    #: Time of reading, from which `start` counts.
    at: datetime
    #: None: nobody can say.
    start: Span | None


def with_places(jobs: Sequence[Job]) -> Sequence[Job]:
    """The same jobs, each with a `place`: None where it does not wait, or where no plan has decided about it yet."""
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
    """The moments between which a job starts that `with_places` has seen; None: nobody can say, or it does not wait."""
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
    """The position and start of a job that `with_places` has seen, as sentences; "" if it is in no queue."""
    place: QueuePlace | None = getattr(job, "place", None)
    if place is None:
        return ""
    where = "It is the only one in line." if place.of == 1 else f"It is number {place.position} of {place.of} in line."
    return f"{where} {starts_in(place.start)}"


def short_start(place: QueuePlace) -> str:
    """The start in the few words that a list has room for; "" if nobody can say."""
    return "" if place.start is None else span_in_words(place.start)
