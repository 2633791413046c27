"""Fan-out of values that change all the time, such as readings, to the websockets that watch them now.

They have no numbers and no history: whoever misses one gets the next. Neither sending nor receiving them touches the
database. Everything here runs on one event loop; no thread needs a lock.
"""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import redis

from core.hub import RECONNECT_SECONDS, Client

__all__ = ["FLUSH_SECONDS", "NewestValues"]

logger = logging.getLogger(__name__)

#: Time between two frames of a topic.
FLUSH_SECONDS = 2.0

#: Function that opens the subscription of this process, which yields messages of `core.live.send_newest`.
Subscribe = Callable[[], AbstractAsyncContextManager[AsyncIterator[str | bytes]]]


class NewestValues:
    def __init__(self, subscribe: Subscribe) -> None:
        self._subscribe = subscribe
        self._watched: dict[str, set[Client]] = defaultdict(set)
        #: Topic -> values that came since its last frame.
        self._fresh: dict[str, dict[str, Any]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to listen on the running loop. Does nothing if it listens already."""
        if self._task is None:
            self._task = asyncio.create_task(self._listen())

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._timer is not None:
            self._timer.cancel()
        self._watched.clear()

    def subscribe(self, client: Client, topic: str) -> None:
        self._watched[topic].add(client)

    def unsubscribe(self, client: Client, topic: str) -> None:
        if clients := self._watched.get(topic):
            clients.discard(client)
            if not clients:
                del self._watched[topic]

    def leave(self, client: Client) -> None:
        for topic in [topic for topic, clients in self._watched.items() if client in clients]:
            self.unsubscribe(client, topic)

    def receive(self, payload: str | bytes) -> None:
        """Note what watched topics have of a message, and send it soon."""
        try:
            news = json.loads(payload)
            watched = {topic: dict(values) for topic, values in news.items() if topic in self._watched}
        except (ValueError, TypeError, AttributeError):
            logger.warning("dropped invalid values: %.200r", payload)
            return
        for topic, values in watched.items():
            self._fresh[topic] = self._fresh.get(topic, {}) | values
        if self._fresh and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._flush)

    def _flush(self) -> None:
        self._timer = None
        fresh, self._fresh = self._fresh, {}
        for topic, values in fresh.items():
            frame = json.dumps({"topic": topic, "from_seq": 0, "seq": 0, "kind": "newest", "data": values})
            for client in self._watched.get(topic, ()):
                client.send(frame)

    async def _listen(self) -> None:
        while True:
            try:
                async with self._subscribe() as payloads:
                    async for payload in payloads:
                        self.receive(payload)
            except (redis.RedisError, OSError) as error:
                logger.warning("cannot receive newest values, retrying: %s", error)
            except Exception:
                logger.exception("the listener for newest values failed, retrying")
            await asyncio.sleep(RECONNECT_SECONDS)
