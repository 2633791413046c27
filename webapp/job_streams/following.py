"""Events of a job for one follower: read in steps, from any position on, without blocking.

Each step reads as much of the log as one response of `logs/lines/`, so that a slow client costs no memory: unread
lines stay in the file.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from core.errors import NotFound
from core.roles import Asking
from jobs.files.log_lines import Line, lines_after
from jobs.files.logs import Log, Stream, find_log
from jobs.models import Job, MetricPoint
from jobs.queries.jobs import get_visible_job
from jobs.queries.metrics import Sample, metric_points_as_json
from jobs.queries.serializers import JobOutput, as_json
from jobs.states import JobState

__all__ = ["Following", "Place", "StreamEvent", "place_of"]

_POINTS = 500
_PLACE = re.compile(r"([0-9]{1,9})\.([0-9]{1,18})\.([0-9]{1,18})\.([^\r\n\0]{0,128})")


@dataclass(frozen=True)
class Place:
    """Position up to which the follower has received events."""

    attempt: int = 0
    #: Byte offset of the next line in the log of `member`.
    offset: int = 0
    #: Number of the newest metric row that was sent.
    point: int = 0
    #: Rank id of the log, or "" before the first one.
    member: str = ""

    def __str__(self) -> str:
        return f"{self.attempt}.{self.offset}.{self.point}.{self.member}"


def place_of(text: str) -> Place | None:
    """Parse a place that `str(place)` wrote; None if the text is invalid."""
    found = _PLACE.fullmatch(text)
    return Place(int(found[1]), int(found[2]), int(found[3]), found[4]) if found else None


@dataclass(frozen=True)
class StreamEvent:
    """An event: state, log, metrics, end."""

    event: str
    data: dict[str, Any]
    #: Position after the event.
    place: Place

    def as_text(self) -> str:
        """Format the event by the standard of server-sent events."""
        return f"id: {self.place}\nevent: {self.event}\ndata: {json.dumps(self.data, separators=(',', ':'))}\n\n"


class Following:
    """One follower of one job. `look` reads the database, `read` the log; both return new events."""

    def __init__(
        self,
        user: Asking,
        job: int,
        place: Place,
        *,
        rank: str = "",
        stream: Stream = "stdout",
        logs: bool = True,
        metrics: bool = True,
    ) -> None:
        self.user, self.job = user, job
        self._place = place
        self._rank, self._stream, self._logs, self._metrics = rank, stream, logs, metrics
        self._state: dict[str, Any] | None = None
        self._is_finished = False
        #: Log that is being read, and the log that follows it.
        self._log: Log | None = None
        self._next_log: Log | None = None
        #: Whether more can be read at once.
        self.has_more = True
        #: Whether the end has been sent.
        self.is_done = False

    @property
    def lacks_log(self) -> bool:
        """True if the follower wants the log and its rank is about to start."""
        return (
            self._logs
            and self._log is None
            and (self._state or {}).get("state") in (JobState.STARTING, JobState.RUNNING)
        )

    def look(self) -> list[StreamEvent]:
        """Return new events from the database. Raises NotFound if the user may no longer see the job."""
        job = get_visible_job(self.user, self.job)
        state = as_json(JobOutput, job)
        events = [] if state == self._state else [StreamEvent("state", state, self._place)]
        # Before the log is read: lines written before the end are then read after it.
        self._state, self._is_finished = state, job.finished_at is not None
        if self._logs:
            self._find_log(job)
        self.has_more = True
        return [*events, *(self._points(job) if self._metrics else ())]

    def read(self) -> list[StreamEvent]:
        """Return the next part of the log, or the end once everything has been sent."""
        self.has_more = False
        events = list(self._lines())
        if self._is_finished and not self.has_more:
            self.is_done = True
            events.append(StreamEvent("end", {"state": (self._state or {})["state"]}, self._place))
        return events

    def _find_log(self, job: Job) -> None:
        newest = self._log_of(job, None, self._rank)
        if newest is None:
            return
        if self._log is None and self._place.member not in ("", newest.member_id):
            # The follower resumes in an older log: finish that one first.
            self._log = self._log_of(job, self._place.attempt, self._place.member)
        if self._log is None or (self._log.attempt, self._log.member_id) == (newest.attempt, newest.member_id):
            self._take(newest)
        else:
            self._next_log = newest

    def _log_of(self, job: Job, attempt: int | None, rank: str) -> Log | None:
        try:
            return find_log(job, attempt=attempt, rank=rank, stream=self._stream)
        except NotFound:
            return None

    def _take(self, log: Log) -> None:
        self._log, self._next_log = log, None
        if (self._place.attempt, self._place.member) != (log.attempt, log.member_id):
            self._place = replace(self._place, attempt=log.attempt, member=log.member_id, offset=0)

    def _lines(self) -> Iterator[StreamEvent]:
        """Yield lines, including an incomplete last line of a log that will not grow."""
        if self._log is None:
            return
        with self._log.opened() as descriptor:
            found = None if descriptor is None else lines_after(descriptor, self._place.offset)
        if found is not None:
            self.has_more = found.next > self._place.offset and found.next < found.size and found.unfinished is None
            rest = found.unfinished if (self._is_finished or self._next_log) and not self.has_more else None
            lines = [*found.lines, *([rest] if rest else [])]
            self._place = replace(self._place, offset=found.size if rest else found.next)
            if lines:
                yield self._log_event(lines)
        if not self.has_more and self._next_log is not None:
            self._take(self._next_log)
            self.has_more = True

    def _log_event(self, lines: list[Line]) -> StreamEvent:
        assert self._log is not None
        texts = ["".join(span.text for span in line.spans) for line in lines]
        return StreamEvent(
            "log", {"attempt": self._log.attempt, "rank": self._log.member_id, "lines": texts}, self._place
        )

    def _points(self, job: Job) -> Iterator[StreamEvent]:
        while True:
            rows = list(
                MetricPoint.objects.filter(job=job, pk__gt=self._place.point)
                .order_by("pk")
                .values_list("pk", "name", *Sample._fields)[:_POINTS]
            )
            if not rows:
                return
            self._place = replace(self._place, point=rows[-1][0])
            points = [point for row in rows for point in metric_points_as_json(row[1], [Sample(*row[2:])])]
            yield StreamEvent("metrics", {"points": points}, self._place)
            if len(rows) < _POINTS:
                return
