"""Sends the events of jobs that `jobs.api.stream` has let in, on the event loop: a follower who waits holds no thread.

A view in Django would keep the thread of its request until its answer has been sent. So the view only decides; it
hands the follower over, and this sends once Django has done with the request. News wake it by the hub, as they do
websockets; logs do not travel by the broker, and are looked at.
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
from jobs.api.stream import STREAMS_KEY
from jobs.queries.job_stream import Following, Told
from jobs.topics import job_topic
from webapp.consumers import hub_of_this_loop

__all__ = ["JobStreams"]

logger = logging.getLogger(__name__)

#: After so long a follower asks again, and is let in anew or refused.
STREAM_SECONDS = 60.0
#: Proxies and clients take what is silent for longer as lost.
PING_SECONDS = 3.0
#: Between two looks at a log, or for one that is about to begin: soon after news, later while there are none.
_SOONEST, _LATEST = 0.05, 0.5
#: Between two looks at the database without news, for news that were lost.
LOOK_SECONDS = 5.0
#: For a reader to take what it was sent.
SLOW_SECONDS = 30.0
STREAMS_OF_USER, STREAMS = 30, 600
#: Seconds after which a client that was refused for want of room should try again.
_RETRY_SECONDS = 10

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class _Waker(Client):
    """Rings at any news of a topic, which it does not keep."""

    def __init__(self) -> None:
        super().__init__(limit=1)
        self.woken = asyncio.Event()

    def send(self, frame: str) -> None:
        self.woken.set()


class _StreamSlot:
    """Desk of one request: takes the follower that its view lets in."""

    def __init__(self, open_streams: Counter[int]) -> None:
        self._open = open_streams
        self.following: Following | None = None

    def take(self, following: Following) -> None:
        if self._open[following.user.pk or 0] >= STREAMS_OF_USER or self._open.total() >= STREAMS:
            sentence = "So many trainings are being followed already: end one, or ask for states and logs."
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
            await _until_gone(_send_all(slot.following, send), receive)
        finally:
            self._open[user] -= 1
            if not self._open[user]:
                del self._open[user]


async def _until_gone(sending: Any, receive: Receive) -> None:
    """Send until the end, or until the client has gone."""
    tasks = [asyncio.create_task(sending), asyncio.create_task(_gone(receive))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            # An OSError is a piece that was on its way to a client that has gone.
            if isinstance(result, Exception) and not isinstance(result, OSError):
                logger.error("what sent the events of a job failed", exc_info=result)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_all(following: Following, send: Send) -> None:
    hub, waker = hub_of_this_loop(), _Waker()
    try:
        await hub.subscribe(waker, job_topic(following.job), 0)
        await _follow(following, waker, send)
    except NotFound:
        pass  # the user may not see the job any more: the client asks again, and is told so
    except TimeoutError:
        return  # nobody reads: the server closes what is left open
    finally:
        hub.leave(waker)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _follow(following: Following, waker: _Waker, send: Send) -> None:
    now = asyncio.get_running_loop().time
    ends, sent, pause = now() + STREAM_SECONDS, now(), _SOONEST
    next_look = now()
    while not following.is_done and now() < ends:
        told: list[Told] = []
        if waker.woken.is_set() or now() >= next_look:
            waker.woken.clear()
            told += await database_sync_to_async(following.look)()
            next_look = now() + (pause if following.lacks_log else LOOK_SECONDS)
        told += await asyncio.to_thread(following.read)
        if told or now() >= sent + PING_SECONDS:
            await asyncio.wait_for(_send(told, send), SLOW_SECONDS)
            sent, pause = now(), _SOONEST if told else pause
        if not following.has_more:
            await _woken(waker, min(pause, max(0.0, next_look - now())))
            pause = min(1.2 * pause, _LATEST)


async def _send(told: Sequence[Told], send: Send) -> None:
    """Send events; without any a comment, by which the other end knows that the connection is there."""
    for text in [each.as_text() for each in told] or [":\n\n"]:
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _woken(waker: _Waker, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(waker.woken.wait(), seconds)
