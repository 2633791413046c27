"""The line of trainings that wait: the place of each, and when it starts, if nobody else comes."""

from collections.abc import Sequence, Set
from dataclasses import replace
from datetime import datetime, timedelta

from django.utils import timezone

from core.time import iso
from jobs.control.durations import lengths, with_lengths
from jobs.control.snapshots import snapshot
from jobs.messages.spans import span_in_words, starts_in
from jobs.models import Job
from jobs.states import JobState
from scheduling.forecast import Place, places
from scheduling.schedule import decided
from scheduling.snapshot import Snapshot

__all__ = ["expected_start", "place_text", "short_start", "with_places"]

#: A start is said in seconds or minutes from then on: within so little time it stays true.
_RENEWED_AFTER = timedelta(seconds=5)


class _Line:
    """The line that one input of the scheduler makes. Each group is played once, however many ask for its trainings."""

    def __init__(self, seen: Snapshot, at: datetime) -> None:
        self.seen = seen
        self.at = at
        known = lengths({}, at)
        self._works = {number: length.work for number, length in known.items()}
        self._decided = decided(with_lengths(seen, known, at)).groups
        self._places: dict[str, dict[int, Place]] = {}

    def places(self, waiting: Set[int]) -> dict[int, Place]:
        found: dict[int, Place] = {}
        for decision, placed in self._decided:
            if waiting & placed.keys():
                name = decision.pool.group.name
                if name not in self._places:
                    self._places[name] = places(decision, self._works)
                found |= self._places[name]
        return {job: found[job] for job in waiting & found.keys()}


#: The newest line of this process.
_newest: _Line | None = None


def _line(now: datetime) -> _Line:
    """The line as it is now. What decides places is read and compared each time: nobody has to tell what has changed.

    When trainings start also depends on how far others are, which these tell about once in a second: that is looked at
    again after `_RENEWED_AFTER`.
    """
    global _newest
    line, seen = _newest, snapshot(now)
    if line is None or not line.at <= now < line.at + _RENEWED_AFTER or replace(seen, at=line.seen.at) != line.seen:
        line = _newest = _Line(seen, now)
    return line


def with_places(jobs: Sequence[Job]) -> Sequence[Job]:
    """The same jobs, each with its `place` in line: None where it does not wait, or where nothing is decided yet."""
    waiting = {job.pk for job in jobs if job.state == JobState.PENDING}
    line = _line(timezone.now()) if waiting else None
    found = line.places(waiting) if line else {}
    for job in jobs:
        job.place = found.get(job.pk)  # type: ignore[attr-defined]
        job.place_at = line and line.at  # type: ignore[attr-defined]
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


def place_text(job: Job) -> str:
    """Describe the place and start of a job that `with_places` has seen; "" if it is not in line."""
    place: Place | None = getattr(job, "place", None)
    if place is None:
        return ""
    where = "It is the only one in line." if place.of == 1 else f"It is number {place.position} of {place.of} in line."
    return f"{where} {starts_in(place.start)}"


def short_start(place: Place) -> str:
    """Return when it starts, in the few words that a list has room for."""
    return "" if place.start is None else span_in_words(place.start)
