"""Fan-out of live events to the websockets of one web process: one broker subscription, JSON encoded once per frame.

The hub keeps a short history per watched topic. A flush sends every subscriber the events that it lacks: the first
event at once, then at most one flush per topic in 500 ms, or in 100 ms for urgent events. Subscribers at the
same number get the same encoded frames. If numbers are missing (a lost event, a broker that was down, a page that is
too old), the subscriber gets a `reset` and fetches the current state.

Everything here runs on one event loop; no thread needs a lock.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import redis

from core.live import Event, merge

__all__ = ["CALM", "Client", "Hub", "frames", "is_urgent"]

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 0.5
#: Seconds between two flushes with urgent events: holders of GPUs, and states of jobs.
URGENT_SECONDS = 0.1
#: Names of fields that change with every step and reading; an event with no other fields is not urgent.
CALM = frozenset({"step", "epoch", "progress", "final_metrics", "metrics", "utilisation_percent"})
#: Seconds between two comparisons of numbers with the database, which find events whose publication failed.
AUDIT_SECONDS = 5.0
RECONNECT_SECONDS = 1.0
HISTORY_EVENTS = 256
#: Largest number of appended items in a frame; beyond it, fetching is cheaper.
APPEND_ITEMS = 500
CLIENT_FRAMES = 64

ReadSeqs = Callable[[Iterable[str]], Awaitable[dict[str, int]]]
#: Function that opens the subscription of this process, which yields event payloads.
Subscribe = Callable[[], AbstractAsyncContextManager[AsyncIterator[str | bytes]]]


def is_urgent(news: dict[str, Any]) -> bool:
    """Return whether an event about jobs, slots or hosts has fields outside of CALM: the same rule as in `live.js`."""
    rest = {name: value for name, value in news.items() if name not in ("slots", "jobs")}
    parts = [rest]
    for named in (news.get("slots"), news.get("jobs")):
        parts += named.values() if isinstance(named, dict) else [{"new": True}] if named else []
    return any(part.keys() - CALM for part in parts)


class Client:
    """A websocket's bounded queue of encoded frames. If it is full, the client is too slow."""

    def __init__(self, limit: int = CLIENT_FRAMES) -> None:
        self._queue: asyncio.Queue[str] = asyncio.Queue(limit)
        #: Set once a frame did not fit; the consumer then closes the websocket.
        self.too_slow = asyncio.Event()

    def send(self, frame: str) -> None:
        try:
            self._queue.put_nowait(frame)
        except asyncio.QueueFull:
            self.too_slow.set()

    async def next_frame(self) -> str:
        return await self._queue.get()


@dataclass
class _Topic:
    #: Newest number up to which the history is complete; None until the number is read from the database.
    tip: int | None = None
    history: deque[Event] = field(default_factory=lambda: deque(maxlen=HISTORY_EVENTS))
    #: Events that arrived before an earlier one: number -> event.
    early: dict[int, Event] = field(default_factory=dict)
    #: Subscribers: client -> newest number that it has.
    known: dict[Client, int] = field(default_factory=dict)
    #: Number of clients that are about to subscribe, which keep the topic watched.
    arriving: int = 0
    flushed_at: float = float("-inf")
    #: Next flush, and its due time by the loop's clock. (uvloop's handle of a past time does not have it.)
    timer: asyncio.Handle | None = None
    due: float = 0.0


class _Numbers:
    """Reader of topics' numbers, with one query at a time: callers during a query share the next one."""

    def __init__(self, read_seqs: ReadSeqs) -> None:
        self._read_seqs = read_seqs
        self._names: set[str] = set()
        self._next: asyncio.Task[dict[str, int]] | None = None
        self._lock = asyncio.Lock()

    async def read(self, name: str) -> int:
        """Return the number of a topic, from a query that begins after the call."""
        self._names.add(name)
        if self._next is None:
            self._next = asyncio.create_task(self._read_together())
        # Cancelling one waiter must not cancel the shared query.
        return (await asyncio.shield(self._next))[name]

    async def _read_together(self) -> dict[str, int]:
        async with self._lock:
            names, self._names, self._next = self._names, set(), None
            return await self._read_seqs(sorted(names))


class Hub:
    def __init__(self, read_seqs: ReadSeqs, subscribe: Subscribe) -> None:
        self._read_seqs = read_seqs
        self._numbers = _Numbers(read_seqs)
        self._subscribe = subscribe
        self._topics: dict[str, _Topic] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start to listen on the running loop. Does nothing if it listens already."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._audit())]

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        for topic in self._topics.values():
            if topic.timer:
                topic.timer.cancel()
        self._topics.clear()

    async def subscribe(self, client: Client, name: str, after: int) -> None:
        """Send the client all events after number `after` of the topic from now on."""
        topic = self._topics.setdefault(name, _Topic())
        # The topic is watched before its number is read, so that no event is missed in between.
        topic.arriving += 1
        before = topic.tip
        try:
            current = await self._numbers.read(name)
        except BaseException:
            # This includes a browser that disconnects meanwhile: otherwise the topic would never be removed.
            topic.arriving -= 1
            self.unsubscribe(client, name)
            raise
        topic.arriving -= 1
        self._step_back(name, topic, before, current)
        self._learn_tip(topic, current)
        if after > current:  # the number comes from another database
            client.send(json.dumps(_frame(name, after, current, "reset", {})))
        topic.known[client] = min(after, current)
        self._flush(name, topic)

    def unsubscribe(self, client: Client, name: str) -> None:
        topic = self._topics.get(name)
        if topic is None:
            return
        topic.known.pop(client, None)
        if not topic.known and not topic.arriving:
            if topic.timer:
                topic.timer.cancel()
            del self._topics[name]

    def leave(self, client: Client) -> None:
        for name in [name for name, topic in self._topics.items() if client in topic.known]:
            self.unsubscribe(client, name)

    def receive(self, event: Event) -> None:
        topic = self._topics.get(event.topic)
        if topic is None or (topic.tip is not None and event.seq <= topic.tip):
            return
        topic.early[event.seq] = event
        self._absorb(topic)
        if len(topic.early) > HISTORY_EVENTS:
            self._skip_to(topic, max(topic.early))
        self._schedule(event.topic, topic, URGENT_SECONDS if is_urgent(event.data) else FLUSH_SECONDS)

    def _learn_tip(self, topic: _Topic, current: int) -> None:
        if topic.tip is None:
            topic.tip = current
        topic.early = {seq: event for seq, event in topic.early.items() if seq > topic.tip}
        self._absorb(topic)

    def _step_back(self, name: str, topic: _Topic, before: int | None, current: int) -> None:
        """Reset subscribers if the number has shrunk, which means that a backup of the database was restored.

        before: the topic's number when the query for `current` began.
        """
        if before is None or current >= before:
            return
        topic.tip = current
        topic.history.clear()
        topic.early.clear()
        for client, known in topic.known.items():
            client.send(json.dumps(_frame(name, known, current, "reset", {})))
            topic.known[client] = current

    def _absorb(self, topic: _Topic) -> None:
        while topic.tip is not None and topic.tip + 1 in topic.early:
            topic.tip += 1
            topic.history.append(topic.early.pop(topic.tip))

    def _skip_to(self, topic: _Topic, seq: int) -> None:
        """Stop waiting for missing numbers: subscribers that need them will be reset."""
        topic.history.clear()
        topic.tip = seq
        topic.early = {number: event for number, event in topic.early.items() if number > seq}
        self._absorb(topic)

    def _schedule(self, name: str, topic: _Topic, pause_seconds: float) -> None:
        due = topic.flushed_at + pause_seconds
        if topic.timer is not None:
            if topic.due <= due:
                return
            topic.timer.cancel()
        topic.due = due
        topic.timer = asyncio.get_running_loop().call_at(due, self._flush_due, name, topic)

    def _flush_due(self, name: str, topic: _Topic) -> None:
        topic.timer = None
        topic.flushed_at = asyncio.get_running_loop().time()
        self._flush(name, topic)

    def _flush(self, name: str, topic: _Topic) -> None:
        if topic.tip is None:
            return
        encoded: dict[int, list[str]] = {}
        for client, known in topic.known.items():
            if known >= topic.tip:
                continue
            if known not in encoded:
                encoded[known] = [json.dumps(frame) for frame in frames(name, topic.history, known, topic.tip)]
            for frame in encoded[known]:
                client.send(frame)
            topic.known[client] = topic.tip

    async def _listen(self) -> None:
        while True:
            try:
                async with self._subscribe() as payloads:
                    async for payload in payloads:
                        self._receive_payload(payload)
            except (redis.RedisError, OSError) as error:
                logger.warning("cannot receive live events, retrying: %s", error)
            except Exception:
                # Without a retry, pages would get no events for the lifetime of this process.
                logger.exception("the listener for live events failed, retrying")
            await asyncio.sleep(RECONNECT_SECONDS)

    def _receive_payload(self, payload: str | bytes) -> None:
        try:
            event = Event(**json.loads(payload))
        except (ValueError, TypeError):
            logger.warning("dropped an invalid event: %.200r", payload)
            return
        self.receive(event)

    async def _audit(self) -> None:
        """Find topics whose newest events never arrived, and reset their subscribers."""
        while True:
            behind = {name: topic.tip for name, topic in self._topics.items()}
            await asyncio.sleep(AUDIT_SECONDS)
            try:
                current = await self._read_seqs([name for name in behind if name in self._topics])
            except Exception:
                logger.exception("cannot compare live topics with the database")
                continue
            for name, seq in current.items():
                if topic := self._topics.get(name):
                    self._step_back(name, topic, behind[name], seq)
            self.catch_up({name: seq for name, seq in current.items() if self._stuck(name, behind[name])})

    def _stuck(self, name: str, tip_before: int | None) -> bool:
        topic = self._topics.get(name)
        return topic is not None and topic.tip is not None and topic.tip == tip_before

    def catch_up(self, current: dict[str, int]) -> None:
        for name, seq in current.items():
            topic = self._topics[name]
            if topic.tip is not None and seq > topic.tip:
                self._skip_to(topic, seq)
                self._schedule(name, topic, URGENT_SECONDS)


def frames(name: str, history: Iterable[Event], known: int, tip: int) -> list[dict[str, Any]]:
    """Return the frames from number `known` to `tip`: runs of one kind are joined; or one reset."""
    missing = [event for event in history if known < event.seq <= tip]
    if len(missing) != tip - known:
        return [_frame(name, known, tip, "reset", {})]
    joined = []
    for kind, run in groupby(missing, key=lambda event: event.kind):
        events = list(run)
        data = _merge_states(name, events) if kind == "state" else _concatenate(events)
        joined.append(_frame(name, events[0].seq - 1, events[-1].seq, kind, data))
    appended = sum(len(items) for frame in joined if frame["kind"] == "append" for items in frame["data"].values())
    if appended > APPEND_ITEMS:
        return [_frame(name, known, tip, "reset", {})]
    return joined


def _frame(topic: str, from_seq: int, seq: int, kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"topic": topic, "from_seq": from_seq, "seq": seq, "kind": kind, "data": data}


def _merge_states(topic: str, events: list[Event]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for event in events:
        merged = merge(topic, merged, event.data)
    return merged


def _concatenate(events: list[Event]) -> dict[str, list[Any]]:
    joined: dict[str, list[Any]] = {}
    for event in events:
        for series, items in event.data.items():
            joined.setdefault(series, []).extend(items)
    return joined
