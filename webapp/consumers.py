"""The websocket at `/ws/live/`: one per browser tab, any number of topics. See `webapp/lib/hub.py` for what flows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

from channels.auth import get_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

from jobs.queries import visible_jobs
from webapp.lib.broker import connect_async
from webapp.lib.hub import Client, Hub
from webapp.lib.live import CLUSTER, LIVE_CHANNEL, current_seqs, job_topic

__all__ = ["LiveConsumer", "may_see"]

NOT_LOGGED_IN = 4401
NOT_ALLOWED = 4403
NOT_UNDERSTOOD = 4400
TOO_SLOW = 1013

RECHECK_SECONDS = 60.0
MAX_TOPICS = 50

User = AbstractBaseUser | AnonymousUser
#: One hub per event loop, that is per web process.
_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = WeakKeyDictionary()


class LiveConsumer(AsyncWebsocketConsumer):
    """`{subscribe, after}` and `{unsubscribe}` in, frames out. A close code says what was wrong."""

    recheck_seconds = RECHECK_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.client = Client()
        self.topics: set[str] = set()
        self.tasks: list[asyncio.Task[None]] = []

    async def connect(self) -> None:
        # Accepted first: a refused handshake would not show the browser the close code.
        await self.accept()
        if not self.scope["user"].is_authenticated:
            await self.close(NOT_LOGGED_IN)
            return
        self.hub = _hub_of_this_loop()
        steps = [self._send_frames(), self._close_when_too_slow(), self._recheck_permissions()]
        self.tasks = [asyncio.create_task(step) for step in steps]

    async def disconnect(self, code: int) -> None:
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            with suppress(asyncio.CancelledError):
                await task
        if self.topics:
            self.hub.leave(self.client)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        match _parsed(text_data):
            case {"subscribe": str(topic), "after": int(after)} if len(self.topics) < MAX_TOPICS:
                await self._subscribe(topic, after)
            case {"unsubscribe": str(topic)}:
                self.topics.discard(topic)
                self.hub.unsubscribe(self.client, topic)
            case _:
                await self.close(NOT_UNDERSTOOD)

    async def _subscribe(self, topic: str, after: int) -> None:
        if not await may_see(self.scope["user"], [topic]):
            await self.close(NOT_ALLOWED)
            return
        self.topics.add(topic)
        await self.hub.subscribe(self.client, topic, after)

    async def _send_frames(self) -> None:
        while True:
            await self.send(text_data=await self.client.next_frame())

    async def _close_when_too_slow(self) -> None:
        await self.client.too_slow.wait()
        await self.close(TOO_SLOW)

    async def _recheck_permissions(self) -> None:
        while True:
            await asyncio.sleep(self.recheck_seconds)
            user = await _user_now(self.scope)
            if not user.is_authenticated:
                await self.close(NOT_LOGGED_IN)
                return
            if not await may_see(user, self.topics):
                await self.close(NOT_ALLOWED)
                return


@database_sync_to_async
def may_see(user: User, topics: Iterable[str]) -> bool:
    """All of these topics: everybody sees the cluster, a job's topic who may see the job."""
    jobs = {topic for topic in topics if topic != CLUSTER}
    numbers = {int(number) for number in (topic.removeprefix("job.") for topic in jobs) if number.isdecimal()}
    visible = visible_jobs(user).filter(pk__in=numbers).values_list("pk", flat=True)
    return jobs <= {job_topic(job) for job in visible}


async def _user_now(scope: dict[str, Any]) -> User:
    """Who the session belongs to now: nobody after a log-out, a password change or when the account was disabled."""
    session = scope["session"]
    if not await database_sync_to_async(session.exists)(session.session_key):
        return AnonymousUser()
    return await get_user(scope)


def _parsed(text: str | None) -> Any:
    try:
        return json.loads(text or "")
    except ValueError:
        return None


def _hub_of_this_loop() -> Hub:
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = Hub(database_sync_to_async(current_seqs), _broker_events)
    _hubs[loop].start()
    return _hubs[loop]


@asynccontextmanager
async def _broker_events() -> AsyncIterator[AsyncIterator[str | bytes]]:
    async with connect_async() as client, client.pubsub() as subscription:
        await subscription.subscribe(LIVE_CHANNEL)

        async def payloads() -> AsyncIterator[str | bytes]:
            async for message in subscription.listen():
                if message["type"] == "message":
                    yield message["data"]

        yield payloads()
