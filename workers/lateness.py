"""Delay of the control plane: how far it is behind with the reports that hosts have sent.

The leading scheduler sends a mark into the queue of reports about once a second. Messages are taken in order, so all
reports that were sent before a mark have been taken once the mark has. No report that still waits is older than the
newest mark that was taken. A control plane that is behind judges nobody by silence: the delay is its own.
"""

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError
from django.db.models import F, Q
from django.http import HttpRequest
from django.utils import timezone

from core.text import plural
from workers.models import Intake

__all__ = [
    "RecentDelay",
    "SilenceWatch",
    "delay_sentence",
    "in_templates",
    "is_behind",
    "mark_pause_seconds",
    "note_dropped",
    "note_forged",
    "note_mark",
    "recent_delay",
    "reports_delay",
    "taken_until",
]

logger = logging.getLogger(__name__)

#: Delay that never counts as being behind: marks are sent once a second, by a loop that does other work, too.
_USUAL_DELAY = timedelta(seconds=3)
_LONGEST_DELAY = timedelta(seconds=10)
#: Time after the control plane has caught up before it judges anybody by silence: executors that found the queue full
#: try again within 4 s.
_SETTLING = timedelta(seconds=5)
#: Largest step back of a mark that concurrent processes cause. A larger one means that a clock was set back.
_OUT_OF_ORDER = timedelta(seconds=60)
_LONGEST_MARK_PAUSE_SECONDS = 10.0
_KNOWN_SECONDS = 1.0


def note_mark(sent_at: datetime) -> None:
    """Store that all reports sent before `sent_at` have been taken."""
    is_newer = Q(taken_until=None) | Q(taken_until__lt=sent_at) | Q(taken_until__gt=sent_at + _OUT_OF_ORDER)
    newer = Intake.objects.filter(is_newer, pk=1)
    # The row is there but for the first mark of all.
    if newer.update(taken_until=sent_at) or (_make_row() and newer.update(taken_until=sent_at)):
        RECENT_DELAY.note(sent_at)


def note_dropped(count: int) -> None:
    """Count messages in the queue of reports that could not be read."""
    _make_row()
    Intake.objects.filter(pk=1).update(dropped=F("dropped") + count)


def note_forged(count: int) -> None:
    """Count reports that their hosts have not sent, or had sent before."""
    _make_row()
    Intake.objects.filter(pk=1).update(forged=F("forged") + count)


def _make_row() -> bool:
    """Make the only row if it is not there; return whether it was made."""
    return Intake.objects.get_or_create(pk=1)[1]


def taken_until() -> datetime | None:
    """Return the time before which all reports sent have been taken; None: no mark has been taken yet."""
    return Intake.objects.filter(pk=1).values_list("taken_until", flat=True).first()


def reports_delay(now: datetime) -> timedelta | None:
    """Return the greatest age of a report that may still wait; None: unknown."""
    until = taken_until()
    return None if until is None else max(timedelta(0), now - until)


def is_behind(delay: timedelta) -> bool:
    """Return whether reports wait for so long that a host may not be judged by what has been taken."""
    lease = timedelta(seconds=settings.TIDEPOOL_LEASE_SECONDS)
    return delay > max(_USUAL_DELAY, min(lease / 3, _LONGEST_DELAY))


def mark_pause_seconds(delay: timedelta | None) -> float:
    """Return the pause before the next mark. It grows with the delay: marks must not fill a queue that nobody reads."""
    seconds = 0.0 if delay is None else delay.total_seconds() / 10
    return min(max(1.0, seconds), _LONGEST_MARK_PAUSE_SECONDS)


def delay_sentence(delay: timedelta | None) -> str:
    """Return what to tell people while the control plane is behind; "": it is not."""
    if delay is None or not is_behind(delay):
        return ""
    behind = plural(round(delay.total_seconds()), "{count} second", "{count} seconds")
    return (
        f"The control plane is {behind} behind with the reports of hosts: what pages show is that old. "
        "Trainings continue, and no host counts as lost meanwhile."
    )


def recent_delay(now: datetime) -> timedelta | None:
    """Return the delay as it was known within the last second, for pages and for each report."""
    return RECENT_DELAY.get(now)


class SilenceWatch:
    """The leading scheduler's view: up to when silence of hosts may be judged."""

    def __init__(self) -> None:
        self._caught_up_at: datetime | None = None

    def judged_until(self, now: datetime) -> datetime | None:
        """Return the time up to which all reports have been taken; None: the control plane is or was just behind."""
        until = taken_until()
        if until is None or is_behind(now - until):
            self._caught_up_at = None
            return None
        self._caught_up_at = self._caught_up_at or now
        return min(until, now) if now - self._caught_up_at >= _SETTLING else None


class RecentDelay:
    """Delay for pages and stored reports, read from the database at most once a second by each process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._read_at: float | None = None
        self._until: datetime | None = None

    def get(self, now: datetime) -> timedelta | None:
        read_at = self._clock()
        if self._read_at is None or read_at - self._read_at >= _KNOWN_SECONDS:
            try:
                self.note(taken_until())
            except DatabaseError as error:  # the page of an error shows the banner, too
                logger.warning("the delay of reports is unknown: %s", error)
        return None if self._until is None else max(timedelta(0), now - self._until)

    def note(self, until: datetime | None) -> None:
        self._read_at, self._until = self._clock(), until


#: Delay as this process knows it.
RECENT_DELAY = RecentDelay()


def in_templates(request: HttpRequest) -> dict[str, object]:
    """Context processor: gives templates the sentence of the banner while the control plane is behind."""
    return {"delay_of_reports": lambda: delay_sentence(recent_delay(timezone.now()))}
