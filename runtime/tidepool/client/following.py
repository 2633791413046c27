"""Follow a job to its end, by the site's stream of events or, if that is not available, by polling.

A stream costs the site one connection and no thread, and delivers each line as soon as it is written. Polling is used
behind proxies that buffer responses, and for sites without streams; its interval grows while nothing changes.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidepool.client.decoding import decoded
from tidepool.client.errors import NotFound, Unreachable
from tidepool.client.http import Connection
from tidepool.client.patience import Patience
from tidepool.client.rows import JobInfo, LogLine, MetricPoint

__all__ = ["Change", "Follower", "ServerEvent", "fetch_info", "parsed"]

#: Shortest and longest seconds between two polls; the interval grows while nothing changes.
_SOONEST, _LATEST = 0.2, 1.0
#: Seconds of silence after which a stream counts as lost or buffered: the site sends something every 3 s.
_SILENT_SECONDS = 12.0
_MEDIA_TYPE = "text/event-stream"
#: A line of a log is shown up to 8 KiB, a piece has 64 KiB of them; no event is longer.
_EVENT_BYTES = 4 * 1024**2

#: One change of a followed training; None: the site answered that nothing has changed.
Change = JobInfo | LogLine | MetricPoint | None


@dataclass(frozen=True)
class ServerEvent:
    name: str
    #: Id of the event, to resume after it.
    id: str
    data: str


def parsed(pieces: Iterable[bytes]) -> Iterator[ServerEvent | None]:
    """Parse a stream of server-sent events; yield None for a comment.

    Raises ValueError if it is not a stream of a Tidepool site.
    """
    buffer, fields = b"", {"event": "message", "id": "", "data": ""}
    for piece in pieces:
        buffer += piece
        *lines, buffer = buffer.split(b"\n")
        if len(buffer) > _EVENT_BYTES:
            raise ValueError("a line of the stream is longer than any event")
        for line in lines:
            name, _, value = line.decode().rstrip("\r").partition(":")
            if name:
                fields[name] = value.removeprefix(" ")
            elif line.startswith(b":"):
                yield None
            elif fields["data"]:
                yield ServerEvent(fields["event"], fields["id"], fields["data"])
                fields = {"event": "message", "id": fields["id"], "data": ""}


class _NoStream(Exception):
    """The site has no stream, or a proxy blocks it."""


@dataclass
class Follower:
    """Follower of one job, from its beginning or from a position."""

    connection: Connection
    job: int
    rank: int | str | None = None
    stream: str = "stdout"
    logs: bool = True
    metrics: bool = False
    #: Attempt and member whose log was read last, and where its next line begins.
    place: tuple[int, str] | None = None
    after: int = 0
    _id: str = ""
    _has_stream: bool = True

    def changes(self) -> Iterator[Change]:
        """Yield changes of the job until it is over; the last is the job at its end. Raises NotFound, Unreachable …"""
        try:
            while self._has_stream:
                for event in self._streamed():
                    if event is None:
                        yield None
                        continue
                    yield from self._changes_of(event)
                    if event.name == "end":
                        return
                time.sleep(_SOONEST)
        except _NoStream:
            self._has_stream = False
        yield from self._polled()

    def changes_through_outages(self, patience: Patience) -> Iterator[Change]:
        """Yield changes like `changes`, however long the site does not answer. Raises TimeoutError after the limit."""
        while True:
            try:
                for change in self.changes():
                    patience.heard()
                    yield change
                    patience.heard()  # however long the caller took
                return
            except Unreachable as error:
                patience.keep(error)

    def _streamed(self) -> Iterator[ServerEvent | None]:
        """Yield events of one connection, which may end at any event."""
        begun = heard = False
        wanted = {"rank": self.rank, "stream": self.stream, "logs": self.logs, "metrics": self.metrics}
        behind = self._id or ("" if self.place is None else f"{self.place[0]}.{self.after}.0.{self.place[1]}")
        headers = {"Accept": f"{_MEDIA_TYPE}, application/json", **({"Last-Event-ID": behind} if behind else {})}
        path = f"jobs/{self.job}/stream/"
        try:
            with self.connection.stream(path, wanted, headers=headers, seconds=_SILENT_SECONDS) as response:
                if _MEDIA_TYPE not in (response.headers.get("Content-Type") or ""):
                    raise _NoStream
                begun = True
                for event in parsed(response.iter_bytes()):
                    heard = True
                    yield event
                    self._id = event.id if event is not None else self._id
        except (NotFound, ValueError) as error:
            raise _NoStream from error
        except Unreachable as error:
            # The connection was lost after a first event: following continues on another one.
            if (begun and not heard) or error.code == "throttled":
                raise _NoStream from error
            if not begun:
                raise

    def _changes_of(self, event: ServerEvent) -> Iterator[Change]:
        data = json.loads(event.data)
        if event.name == "state":
            yield decoded(JobInfo, data)
        elif event.name == "log":
            self.place = (data["attempt"], data["rank"])
            self.after = int(event.id.split(".")[1])
            for text in data["lines"]:
                yield LogLine(text, *self.place)
        elif event.name == "metrics":
            yield from (decoded(MetricPoint, point) for point in data["points"])

    def _polled(self) -> Iterator[Change]:
        pause = _SOONEST
        while True:
            # Fetched before the log is read, so that lines written before the end are read after it.
            info = fetch_info(self.connection, self.job)
            yield info
            pause = min(1.1 * pause, _LATEST)
            for line in self.lines(is_over=info.is_over) if self.logs else ():
                pause = _SOONEST
                yield line
            if info.is_over:
                return
            time.sleep(pause)

    def last(self, count: int, *, then_follow: bool) -> list[LogLine]:
        """Return the last lines of the log; following continues after them, with an incomplete last line."""
        newest = self._newest_log()
        if newest is None:
            return []
        attempt, member = newest
        page = self._page(attempt=attempt, rank=member)
        self.place, self.after = newest, page["next"]
        found = [*page["lines"], *([page["unfinished"]] if page["unfinished"] and not then_follow else [])]
        while len(found) < count and page["start"] > 0:
            page = self._page(attempt=attempt, rank=member, before=page["start"])
            found = [*page["lines"], *found]
        return [_line_of(line, attempt, member) for line in found[max(0, len(found) - count) :]]

    def lines(self, *, is_over: bool) -> Iterator[LogLine]:
        """Return lines written since the last call. is_over: also an incomplete last line.

        When a job loses its rank 0 or starts another attempt, following continues from the beginning of another log.
        """
        newest = self._newest_log()
        if newest is not None and self.place is not None and newest != self.place:
            yield from self._read(with_unfinished=True)
        if newest is not None and newest != self.place:
            self.place, self.after = newest, 0
        if self.place is not None:
            yield from self._read(with_unfinished=is_over)

    def _newest_log(self) -> tuple[int, str] | None:
        """Return the attempt and member of the newest log; None before the job starts."""
        try:
            found = self._page(rank=self.rank, before=0)
        except NotFound:
            fetch_info(self.connection, self.job)  # raises if the job does not exist
            return None
        return found["attempt"], found["rank"]

    def _read(self, *, with_unfinished: bool) -> Iterator[LogLine]:
        assert self.place is not None
        attempt, member = self.place
        while True:
            found = self._page(attempt=attempt, rank=member, after=self.after)
            rest = [found["unfinished"]] if with_unfinished and found["unfinished"] else []
            is_end = found["next"] == self.after or found["next"] >= found["size"] or bool(rest)
            self.after = found["next"]
            for line in [*found["lines"], *rest]:
                yield _line_of(line, attempt, member)
            if is_end:
                return

    def _page(self, **place: Any) -> Any:
        return self.connection.get(f"jobs/{self.job}/logs/lines/", stream=self.stream, **place)


def _line_of(line: Mapping[str, Any], attempt: int, member: str) -> LogLine:
    return LogLine("".join(span["text"] for span in line["spans"]), attempt, member)


def fetch_info(connection: Connection, job: int) -> JobInfo:
    return decoded(JobInfo, connection.get(f"jobs/{job}/"))
