"""The websocket at `/ws/live/`: one per browser tab, with any number of topics. See `core/hub.py` for the frames."""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from channels.auth import get_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

from accounts.topics import ACCOUNTS
from core.broker import connect_async
from core.hub import Client, Hub
from core.live import LIVE_CHANNEL, NEWEST_CHANNEL, current_seqs
from core.newest_values import NewestValues
from core.origins import is_own_origin
from core.roles import is_cluster_admin
from datasets.topics import DATASETS
from jobs.files.log_tail import LogTails, log_topic_parts, topic_log
from jobs.queries.jobs import visible_jobs
from jobs.topics import GROUPS, JOBS, job_of_topic, jobs_topic_of
from studies.queries import studies
from studies.topics import study_of_topic
from webapp.metrics import WEBSOCKETS
from workers.topics import CLUSTER, is_readings_topic

__all__ = ["FullOrigin", "LiveConsumer", "hub_of_this_loop", "may_see"]

NOT_LOGGED_IN = 4401
NOT_ALLOWED = 4403
NOT_UNDERSTOOD = 4400
TOO_SLOW = 1013

RECHECK_SECONDS = 60.0
MAX_TOPICS = 200

logger = logging.getLogger(__name__)

User = AbstractBaseUser | AnonymousUser
#: One hub per event loop, that is per web process.
_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = WeakKeyDictionary()
_tails: WeakKeyDictionary[asyncio.AbstractEventLoop, LogTails] = WeakKeyDictionary()
_newest: WeakKeyDictionary[asyncio.AbstractEventLoop, NewestValues] = WeakKeyDictionary()


class LiveConsumer(AsyncWebsocketConsumer):
    """Receives `{subscribe, after}` and `{unsubscribe}`, and sends frames. The close code tells the reason of an
    error."""

    recheck_seconds = RECHECK_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.client = Client()
        #: Subscription to account changes, which are not sent to the browser.
        self.accounts = Client()
        self.topics: set[str] = set()
        self.tasks: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        # Counted here, because `disconnect` is not called after an error.
        WEBSOCKETS.inc()
        try:
            await super().__call__(scope, receive, send)
        finally:
            WEBSOCKETS.dec()
            await self._end()

    async def connect(self) -> None:
        # Accepted first: a refused handshake would not show the browser the close code.
        await self.accept()
        if not self.scope["user"].is_authenticated:
            await self.close(NOT_LOGGED_IN)
            return
        self.hub = hub_of_this_loop()
        self.tails = _tails.setdefault(asyncio.get_running_loop(), LogTails())
        self.newest = newest_of_this_loop()
        steps = [
            self._send_frames(),
            self._close_when_too_slow(),
            self._recheck_permissions(),
            self._recheck_when_account_changes(),
        ]
        self.tasks = [asyncio.create_task(step) for step in steps]

    async def _end(self) -> None:
        """Unsubscribe from all topics: a topic with a stale subscriber would keep its events forever."""
        if self.tasks:
            self.hub.leave(self.accounts)
        if self.topics:
            self.hub.leave(self.client)
            self.tails.leave(self.client)
            self.newest.leave(self.client)
        for task in self.tasks:
            task.cancel()
        for error in await asyncio.gather(*self.tasks, return_exceptions=True):
            # OSError: the browser disconnected while a frame was being sent.
            if isinstance(error, Exception) and not isinstance(error, OSError):
                logger.error("a websocket's handler failed", exc_info=error)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        match _parsed(text_data):
            case {"subscribe": str(topic), "after": int(after)} if len(self.topics | {topic}) <= MAX_TOPICS:
                await self._subscribe(topic, after)
            case {"unsubscribe": str(topic)}:
                self.topics.discard(topic)
                self.hub.unsubscribe(self.client, topic)
                self.tails.unsubscribe(self.client, topic)
                self.newest.unsubscribe(self.client, topic)
            case _:
                await self.close(NOT_UNDERSTOOD)

    async def _subscribe(self, topic: str, after: int) -> None:
        if not await may_see(self.scope["user"], [topic]):
            await self.close(NOT_ALLOWED)
            return
        self.topics.add(topic)
        if is_readings_topic(topic):
            self.newest.subscribe(self.client, topic)
        elif log_topic_parts(topic) is None:
            await self.hub.subscribe(self.client, topic, after)
        elif log := await database_sync_to_async(topic_log)(topic):
            self.tails.subscribe(self.client, topic, log, max(0, after))
        # An empty frame tells the page that it is up to date from now on.
        self.client.send(json.dumps({"topic": topic, "from_seq": after, "seq": after, "kind": "append", "data": {}}))

    async def _send_frames(self) -> None:
        while True:
            await self.send(text_data=await self.client.next_frame())

    async def _close_when_too_slow(self) -> None:
        await self.client.too_slow.wait()
        await self.close(TOO_SLOW)

    async def _recheck_permissions(self) -> None:
        # Spread the checks, in case many pages reconnected at the same time.
        await asyncio.sleep(self.recheck_seconds * random.random())  # noqa: S311 (it spreads, it hides nothing)
        while await self._close_if_refused():
            await asyncio.sleep(self.recheck_seconds)

    async def _recheck_when_account_changes(self) -> None:
        # Subscribe from the first number, to include changes since the handshake.
        await self.hub.subscribe(self.accounts, ACCOUNTS, 0)
        while True:
            frame = json.loads(await self.accounts.next_frame())
            is_mine = frame["kind"] == "reset" or self.scope["user"].pk in frame["data"]["users"]
            if (is_mine or self.accounts.too_slow.is_set()) and not await self._close_if_refused():
                return

    async def _close_if_refused(self) -> bool:
        """Close the connection and return False if the session has ended or its user may no longer see a topic."""
        user = await _user_now(self.scope)
        if user.is_authenticated and await may_see(user, self.topics):
            return True
        await self.close(NOT_ALLOWED if user.is_authenticated else NOT_LOGGED_IN)
        return False


@database_sync_to_async
def may_see(user: User, topics: Iterable[str]) -> bool:
    """Return whether the user may see all these topics: cluster topics are open to all, those of a job or a study to
    users who may see it."""
    free = {CLUSTER, DATASETS, GROUPS, jobs_topic_of(user.pk or 0)}
    if is_cluster_admin(user):
        free.add(JOBS)
    of_studies = {topic: number for topic in topics if (number := study_of_topic(topic)) is not None}
    if studies(user).filter(pk__in=of_studies.values()).count() < len(of_studies):
        return False
    others = [topic for topic in topics if topic not in of_studies and not is_readings_topic(topic)]
    numbers = {_job_of(topic) for topic in others if topic not in free}
    wanted = {number for number in numbers if number is not None}
    return None not in numbers and visible_jobs(user).filter(pk__in=wanted).count() == len(wanted)


def _job_of(topic: str) -> int | None:
    if log := log_topic_parts(topic):
        return log.job
    return job_of_topic(topic)


async def _user_now(scope: dict[str, Any]) -> User:
    """Return the session's current user; anonymous after a log-out, a password change or a deactivation."""
    session = scope["session"]
    if not await database_sync_to_async(session.exists)(session.session_key):
        return AnonymousUser()
    return await get_user(scope)


def _parsed(text: str | None) -> Any:
    try:
        return json.loads(text or "")
    except (ValueError, RecursionError):
        return None


def hub_of_this_loop() -> Hub:
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = Hub(database_sync_to_async(current_seqs), partial(_broker_messages, LIVE_CHANNEL))
    _hubs[loop].start()
    return _hubs[loop]


def newest_of_this_loop() -> NewestValues:
    loop = asyncio.get_running_loop()
    if loop not in _newest:
        _newest[loop] = NewestValues(partial(_broker_messages, NEWEST_CHANNEL))
    _newest[loop].start()
    return _newest[loop]


@asynccontextmanager
async def _broker_messages(channel: str) -> AsyncIterator[AsyncIterator[str | bytes]]:
    async with connect_async() as client, client.pubsub() as subscription:
        await subscription.subscribe(channel)

        async def payloads() -> AsyncIterator[str | bytes]:
            async for message in subscription.listen():
                if message["type"] == "message":
                    yield message["data"]

        yield payloads()


class FullOrigin:
    """Refuses a handshake whose Origin is not exactly this site's: scheme, host and port.

    Browsers send cookies with requests of any page. Channels' own validator accepts any port and scheme of an allowed
    host.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        is_tls = scope.get("scheme") == "wss"
        if is_own_origin(headers.get(b"origin", ""), headers.get(b"host", ""), is_tls=is_tls):
            await self._application(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 4403})
