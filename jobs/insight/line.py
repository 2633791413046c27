"""The line of trainings that wait: the place of each, and when it starts, if nobody else comes."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.utils import timezone

from core.time import iso
from jobs.control.snapshots import snapshot
from jobs.insight.durations import lengths
from jobs.insight.previews import in_words, starts_in
from jobs.models import Job
from jobs.states import JobState
from scheduling.forecast import Place, places
from scheduling.schedule import decided

__all__ = ["expected_start", "place_text", "places_of", "short_start", "with_places"]


def places_of(jobs: Iterable[Job], now: datetime) -> dict[int, Place]:
    """The places of those of the jobs that wait. Any number of them costs one snapshot and one play of each group."""
    waiting = {job.pk for job in jobs if job.state == JobState.PENDING}
    if not waiting:
        return {}
    works = {number: length.work for number, length in lengths({}, now).items()}
    found: dict[int, Place] = {}
    for decision, placed in decided(snapshot(now)).groups:
        if waiting & placed.keys():
            found |= places(decision, works)
    return {job: place for job, place in found.items() if job in waiting}


def with_places(jobs: Sequence[Job]) -> Sequence[Job]:
    """The same jobs, each with its `place` in line: None where it does not wait, or where nothing is decided yet."""
    now = timezone.now()
    found = places_of(jobs, now)
    for job in jobs:
        job.place = found.get(job.pk)  # type: ignore[attr-defined]
        job.place_at = now  # type: ignore[attr-defined]
    return jobs


def expected_start(job: Job) -> dict[str, str | None] | None:
    """The moments between which a job starts that `with_places` has seen; None: nobody can say, or it does not wait."""
    place: Place | None = getattr(job, "place", None)
    if place is None or place.start is None:
        return None
    now, latest = job.place_at, place.start.latest  # type: ignore[attr-defined]
    return {
        "earliest": iso(now + timedelta(seconds=place.start.earliest)),
        "latest": None if latest is None else iso(now + timedelta(seconds=latest)),
    }


def place_text(place: Place | None) -> str:
    """Where it stands and when it starts, in a sentence; "" for what does not wait in line."""
    if place is None:
        return ""
    where = "It is the only one in line." if place.of == 1 else f"It is number {place.position} of {place.of} in line."
    return f"{where} {starts_in(place.start)}"


def short_start(place: Place) -> str:
    """When it starts, in the few words that a list has room for."""
    return "" if place.start is None else in_words(place.start)
