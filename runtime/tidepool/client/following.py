"""Follow a job to its end: by the site's stream of events, and by asking again and again where none comes through.

A stream costs the site one connection and no thread, and brings a line as soon as it is written. Proxies that hold
back what has not ended, and sites that have no stream, are asked: soon after news, later while there is none.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidepool.client.decoding import decoded
from tidepool.client.errors import NotFound, Unreachable
from tidepool.client.http import Connection
from tidepool.client.rows import JobInfo, LogLine, MetricPoint

__all__ = ["Change", "Follower", "ServerEvent", "fetch_info", "parsed"]

#: Seconds between two looks: soon after news, later while there is none.
_SOONEST, _LATEST = 0.2, 1.0
#: The site lets hear of itself each 3 s; what is silent for longer is lost, or held back.
_SILENT_SECONDS = 12.0
_MEDIA_TYPE = "text/event-stream"
#: A line of a log is shown up to 8 KiB, a piece has 64 KiB of them; no event is longer.
_EVENT_BYTES = 4 * 1024**2

#: One change of a followed training; None: the site answers, and nothing has changed.
Change = JobInfo | LogLine | MetricPoint | None


@dataclass(frozen=True)
class ServerEvent:
    name: str
    #: To go on behind it.
    id: str
    data: str


def parsed(pieces: Iterable[bytes]) -> Iterator[ServerEvent | None]:
    """The events of a stream, as the standard of server-sent events says; None for a comment, which says nothing.

    Raises ValueError for what is no stream of ours.
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
    """The site has none, or it does not come through."""


@dataclass
class Follower:
    """Follower of one job, from its beginning or from where it was."""

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
            # After a first piece of news the connection was lost: following continues by another one.
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
            # Asked before the log is read: what was written before the end is read after it.
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
        """The newest lines of the log; what follows begins behind them, with a line that has not ended yet."""
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
        """Return lines written since. is_over: also the last line, if it never ended.

        A job that loses its rank 0, or begins another attempt, goes on in another log, from its beginning.
        """
        newest = self._newest_log()
        if newest is not None and self.place is not None and newest != self.place:
            yield from self._read(with_unfinished=True)
        if newest is not None and newest != self.place:
            self.place, self.after = newest, 0
        if self.place is not None:
            yield from self._read(with_unfinished=is_over)

    def _newest_log(self) -> tuple[int, str] | None:
        """Attempt and member; None while it has not started."""
        try:
            found = self._page(rank=self.rank, before=0)
        except NotFound:
            fetch_info(self.connection, self.job)  # raises where it is the job that is not there
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
