"""Sender of the events of jobs to followers, on the event loop: a waiting follower occupies no thread.

A Django view would occupy the thread of its request until the response is complete. So the view only checks the
request and hands the follower over, and the sender starts once Django has finished the request. Live events of the hub
wake the sender, as they wake websockets. Logs do not go through the broker: the sender polls them.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from channels.db import database_sync_to_async

from core.errors import NotFound, TooMany
from core.hub import Client
from jobs.topics import job_topic
from webapp.consumers import hub_of_this_loop
from webapp.job_streams.following import Following, StreamEvent
from webapp.job_streams.view import STREAMS_KEY

__all__ = ["JobStreams"]

logger = logging.getLogger(__name__)

#: Longest duration of a response. The client then connects again, and its rights are checked again.
STREAM_SECONDS = 60.0
#: Time without an event after which a comment is sent: proxies and clients close silent connections.
PING_SECONDS = 3.0
#: Shortest and longest pause between reads of a log, in seconds. The pause grows while nothing is new.
_SOONEST, _LATEST = 0.05, 0.5
#: Time between queries without a live event, in case one was lost.
LOOK_SECONDS = 5.0
#: Time that a client has to receive what was sent.
SLOW_SECONDS = 30.0
STREAMS_OF_USER, STREAMS = 30, 600
#: Value of `Retry-After` for refused clients, in seconds.
_RETRY_SECONDS = 10

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class _Waker(Client):
    """Client of the hub that sets an event at each frame and drops the frame."""

    def __init__(self) -> None:
        super().__init__(limit=1)
        self.woken = asyncio.Event()

    def send(self, frame: str) -> None:
        self.woken.set()


class _StreamSlot:
    """Slot in the scope of one request, in which the view puts the follower that it accepts."""

    def __init__(self, open_streams: Counter[int]) -> None:
        self._open = open_streams
        self.following: Following | None = None

    def take(self, following: Following) -> None:
        if self._open[following.user.pk or 0] >= STREAMS_OF_USER or self._open.total() >= STREAMS:
            sentence = "Too many streams are open: close one, or poll the states and logs."
            raise TooMany(sentence, retry_seconds=_RETRY_SECONDS)
        self.following = following


class JobStreams:
    def __init__(self, application: Application) -> None:
        self._application = application
        #: Number of open streams by user.
        self._open: Counter[int] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        slot = _StreamSlot(self._open)
        started = False

        async def tell(message: Any) -> None:
            nonlocal started
            if slot.following is None:
                await send(message)
            elif message["type"] == "http.response.start" and message["status"] == 200:
                started = True
                headers = [(name, value) for name, value in message["headers"] if name.lower() != b"content-length"]
                await send({**message, "headers": headers})

        await self._application({**scope, STREAMS_KEY: slot}, receive, tell)
        if slot.following is None or not started:
            return
        user = slot.following.user.pk or 0
        self._open[user] += 1
        try:
            await _until_disconnect(_send_all(slot.following, send), receive)
        finally:
            self._open[user] -= 1
            if not self._open[user]:
                del self._open[user]


async def _until_disconnect(sending: Any, receive: Receive) -> None:
    """Send until the end, or until the client disconnects."""
    tasks = [asyncio.create_task(sending), asyncio.create_task(_disconnect(receive))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            # OSError: the client disconnected during a write.
            if isinstance(result, Exception) and not isinstance(result, OSError):
                logger.error("sending the events of a job failed", exc_info=result)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_all(following: Following, send: Send) -> None:
    hub, waker = hub_of_this_loop(), _Waker()
    try:
        await hub.subscribe(waker, job_topic(following.job), 0)
        await _follow(following, waker, send)
    except NotFound:
        pass  # The user lost access: the client connects again and is refused.
    except TimeoutError:
        return  # The client does not read: the server closes the connection.
    finally:
        hub.leave(waker)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _follow(following: Following, waker: _Waker, send: Send) -> None:
    now = asyncio.get_running_loop().time
    ends, sent, pause = now() + STREAM_SECONDS, now(), _SOONEST
    next_look = now()
    while not following.is_done and now() < ends:
        events: list[StreamEvent] = []
        if waker.woken.is_set() or now() >= next_look:
            waker.woken.clear()
            events += await database_sync_to_async(following.look)()
            next_look = now() + (pause if following.lacks_log else LOOK_SECONDS)
        events += await asyncio.to_thread(following.read)
        if events or now() >= sent + PING_SECONDS:
            await asyncio.wait_for(_send(events, send), SLOW_SECONDS)
            sent, pause = now(), _SOONEST if events else pause
        if not following.has_more:
            await _woken(waker, min(pause, max(0.0, next_look - now())))
            pause = min(1.2 * pause, _LATEST)


async def _send(events: Sequence[StreamEvent], send: Send) -> None:
    """Send the events, or without any a comment that keeps the connection alive."""
    for text in [event.as_text() for event in events] or [":\n\n"]:
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _woken(waker: _Waker, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(waker.woken.wait(), seconds)
