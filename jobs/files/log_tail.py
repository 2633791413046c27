"""Log tails for the websockets of one process: lines that ranks append become frames of the log's topic.

The topic of a log is `log.<job>.<attempt>.<stream>.<rank id>`. Its frames are numbered by bytes: `seq` is the offset
up to which the log has been read. A frame's lines start at `after` and carry their places, so that a page can detect
overlaps. Logs do not pass through the broker: this process reads the files, and only those with subscribers.
"""

import asyncio
import json
import logging
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from core.hub import Client
from jobs.files.log_lines import lines_after, lines_before
from jobs.files.logs import STREAMS, Log, log_list
from jobs.models import Job

__all__ = ["LogTails", "LogTopic", "log_topic", "log_topic_parts", "topic_log"]

logger = logging.getLogger(__name__)

TAIL_SECONDS = 0.5
#: Backlog in bytes above which lines are skipped: pages continue at the end.
MAX_BEHIND_BYTES = 256 * 1024
_TOPIC = re.compile(rf"log\.([0-9]{{1,9}})\.([0-9]{{1,9}})\.({'|'.join(STREAMS)})\.(.+)", re.DOTALL)


@dataclass(frozen=True)
class LogTopic:
    job: int
    attempt: int
    stream: str
    member_id: str


def log_topic(job: int, log: Log) -> str:
    return f"log.{job}.{log.attempt}.{log.stream}.{log.member_id}"


def log_topic_parts(topic: str) -> LogTopic | None:
    """Parse a log's topic; None for other topics."""
    match = _TOPIC.fullmatch(topic)
    return LogTopic(int(match[1]), int(match[2]), match[3], match[4]) if match else None


def topic_log(topic: str) -> Log | None:
    """Return the log of a topic; None if its rank is unknown. The caller has checked the viewer's permission."""
    parts = log_topic_parts(topic)
    job = Job.objects.select_related("owner", "model__model").filter(pk=parts.job).first() if parts else None
    if parts is None or job is None:
        return None
    logs = log_list(job, attempt=parts.attempt, stream=parts.stream)
    return next((log for log in logs if log.member_id == parts.member_id), None)


@dataclass
class _Tail:
    log: Log
    #: Byte offset up to which the log has been read.
    seen: int
    #: Byte offset of the first unfinished line at that time; None: unknown.
    line: int | None = None
    clients: set[Client] = field(default_factory=set)


class LogTails:
    def __init__(self, seconds: float = TAIL_SECONDS) -> None:
        self._seconds = seconds
        self._tails: dict[str, _Tail] = {}
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, client: Client, topic: str, log: Log, after: int) -> None:
        """Subscribe the client to new lines. A client that is behind the sent frames is told to read the log."""
        tail = self._tails.setdefault(topic, _Tail(log, after))
        tail.clients.add(client)
        if after < tail.seen:
            client.send(_frame(topic, after, tail.seen, "reset", {}))
        if self._task is None:
            self._task = asyncio.create_task(self._follow())

    def unsubscribe(self, client: Client, topic: str) -> None:
        tail = self._tails.get(topic)
        if tail is None:
            return
        tail.clients.discard(client)
        if not tail.clients:
            del self._tails[topic]
        if not self._tails and self._task:
            self._task.cancel()
            self._task = None

    def leave(self, client: Client) -> None:
        for topic in [topic for topic, tail in self._tails.items() if client in tail.clients]:
            self.unsubscribe(client, topic)

    async def _follow(self) -> None:
        """Poll the logs until the last subscriber leaves."""
        with suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(self._seconds)
                try:
                    frames = await asyncio.to_thread(_read_all, dict(self._tails))
                except OSError:
                    logger.exception("logs could not be read")
                    continue
                for topic, frame in frames:
                    for client in self._tails[topic].clients if topic in self._tails else ():
                        client.send(frame)


def _read_all(tails: dict[str, _Tail]) -> list[tuple[str, str]]:
    return [(topic, frame) for topic, tail in tails.items() for frame in _read(topic, tail)]


def _read(topic: str, tail: _Tail) -> list[str]:
    """Return the frames for new content of one log."""
    with tail.log.opened() as descriptor:
        if descriptor is None:
            return []
        if tail.line is None:
            tail.line = lines_before(descriptor, tail.seen).next
        piece = lines_after(descriptor, tail.line)
        if piece.size == tail.seen:
            return []
        known = tail.seen
        if piece.size < known or piece.size - known > MAX_BEHIND_BYTES:
            tail.seen, tail.line = piece.size, lines_before(descriptor, piece.size).next
            return [_frame(topic, known, tail.seen, "reset", {})]
        is_all = piece.unfinished is not None or piece.next == piece.size
        tail.seen, tail.line = piece.size if is_all else max(piece.next, known), piece.next
        lines = asdict(piece)
        return [_frame(topic, known, tail.seen, "append", {"after": lines.pop("start"), **lines})]


def _frame(topic: str, from_seq: int, seq: int, kind: str, data: dict[str, Any]) -> str:
    return json.dumps({"topic": topic, "from_seq": from_seq, "seq": seq, "kind": kind, "data": data})
