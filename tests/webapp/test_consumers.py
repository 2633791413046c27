"""The websocket: who may subscribe to what, and what the close codes say."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from channels.db import database_sync_to_async
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.sessions.backends.db import SessionStore

from accounts import actions
from accounts.authentication import BACKEND
from accounts.topics import ACCOUNTS
from core import newest_values
from core.hub import Hub
from core.live import LIVE_CHANNEL, NEWEST_CHANNEL, Event, current_seqs
from core.newest_values import NewestValues
from core.roles import Role
from jobs.models import Job
from jobs.topics import JOBS, job_topic
from tests.factories import JobFactory, UserFactory
from tests.waiting import PATIENCE_SECONDS
from webapp import consumers
from webapp.consumers import LiveConsumer
from workers.topics import CLUSTER, readings_topic

pytestmark = pytest.mark.django_db(transaction=True)


class Browser(ApplicationCommunicator):
    """The other end of the websocket. (`channels.testing` would need daphne.)"""

    def __init__(self, user: Any, session: Any) -> None:
        super().__init__(LiveConsumer.as_asgi(), {"type": "websocket", "user": user, "session": session})

    async def connect(self) -> None:
        await self.send_input({"type": "websocket.connect"})
        assert (await self.receive_output(PATIENCE_SECONDS))["type"] == "websocket.accept"

    async def say(self, text: str) -> None:
        await self.send_input({"type": "websocket.receive", "text": text})

    async def subscribe(self, topic: str, after: int = 0) -> None:
        await self.say(json.dumps({"subscribe": topic, "after": after}))

    async def follow(self, topic: str, after: int = 0) -> None:
        """Subscribe, and wait until the server says that nothing is missed from now on."""
        await self.subscribe(topic, after)
        expected = {"topic": topic, "from_seq": after, "seq": after, "kind": "append", "data": {}}
        while await self.frame() != expected:
            pass

    async def frame(self) -> dict[str, Any]:
        return json.loads((await self.receive_output(PATIENCE_SECONDS))["text"])

    async def close_code(self) -> int:
        """Reads until the server closes."""
        while (message := await self.receive_output(PATIENCE_SECONDS))["type"] != "websocket.close":
            pass
        return int(message["code"])

    async def leave(self) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(PATIENCE_SECONDS)


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    """The process's hub, with a broker that says nothing by itself."""
    loop = asyncio.get_running_loop()
    hub = Hub(database_sync_to_async(current_seqs), partial(consumers._broker_messages, LIVE_CHANNEL))
    newest = NewestValues(partial(consumers._broker_messages, NEWEST_CHANNEL))
    for one in (hub, newest):
        monkeypatch.setattr(one, "start", lambda: None)
    consumers._hubs[loop], consumers._newest[loop] = hub, newest
    yield hub
    await hub.stop()
    await newest.stop()


@database_sync_to_async
def cast() -> tuple[User, User, Job]:
    alice, bob = UserFactory(username="alice"), UserFactory(username="bob")
    return alice, bob, JobFactory(owner=alice)


@database_sync_to_async
def session_of(user: User) -> SessionStore:
    session = SessionStore()
    session["_auth_user_id"] = str(user.pk)
    session["_auth_user_backend"] = BACKEND
    session["_auth_user_hash"] = user.get_session_auth_hash()
    session.create()
    return session


async def connected(user: Any, session: Any = None) -> Browser:
    browser = Browser(user, session)
    await browser.connect()
    return browser


async def test_strangers_are_told_to_log_in(hub: Hub) -> None:
    browser = await connected(AnonymousUser())

    assert await browser.close_code() == 4401


async def test_owner_gets_the_events_of_a_job_and_everybody_the_clusters(hub: Hub) -> None:
    alice, _, job = await cast()
    browser = await connected(alice)
    for topic in (job_topic(job.pk), CLUSTER):
        await browser.follow(topic)

    hub.receive(Event(job_topic(job.pk), 1, "state", {"step": 7}))
    frame = await browser.frame()
    await browser.leave()

    assert frame == {"topic": f"job.{job.pk}", "from_seq": 0, "seq": 1, "kind": "state", "data": {"step": 7}}
    assert not hub._topics


async def test_everybody_may_watch_readings_which_have_no_numbers(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_values, "FLUSH_SECONDS", 0.01)
    _, bob, _ = await cast()
    browser = await connected(bob)
    await browser.follow(readings_topic("gpu-1"))
    newest = consumers.newest_of_this_loop()

    newest.receive(json.dumps({readings_topic("gpu-1"): {"0": 41.0}, readings_topic("gpu-2"): {"0": 7.0}}))
    newest.receive(json.dumps({readings_topic("gpu-1"): {"0": 43.0, "1": None}}))
    frame = await browser.frame()
    await browser.leave()

    assert frame == {
        "topic": "readings.gpu-1",
        "from_seq": 0,
        "seq": 0,
        "kind": "newest",
        "data": {"0": 43.0, "1": None},
    }
    assert not newest._watched
    newest.receive(b"no JSON")
    newest.receive(b"[1]")


async def test_a_browser_that_goes_while_a_frame_is_sent_is_forgotten(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail_for_states(consumer: LiveConsumer, text_data: str) -> None:
        if '"state"' not in text_data:
            await send(consumer, text_data=text_data)
            return
        sent.set()
        raise ConnectionResetError

    sent, send = asyncio.Event(), LiveConsumer.send
    monkeypatch.setattr(LiveConsumer, "send", fail_for_states)
    alice, _, _ = await cast()
    browser = await connected(alice)
    await browser.follow(CLUSTER)

    hub.receive(Event(CLUSTER, 1, "state", {"slots": {}}))
    await asyncio.wait_for(sent.wait(), PATIENCE_SECONDS)
    await browser.leave()

    assert not hub._topics


async def test_a_websocket_that_ends_by_an_error_is_forgotten(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(user: User, topics: list[str]) -> bool:
        raise RuntimeError("database is locked")

    alice, _, _ = await cast()
    browser = await connected(alice)
    await browser.follow(CLUSTER)
    monkeypatch.setattr(consumers, "may_see", fail)

    await browser.subscribe(CLUSTER)
    with pytest.raises(RuntimeError, match="database is locked"):
        await browser.wait(PATIENCE_SECONDS)

    assert not hub._topics


@pytest.mark.parametrize("topic", ["job.{job}", "job.999", "job.", "job.1x", "nonsense", "group.1", "job.\u0663"])
async def test_others_jobs_and_what_is_not_there_are_refused(hub: Hub, topic: str) -> None:
    _, bob, job = await cast()
    browser = await connected(bob)

    await browser.subscribe(topic.format(job=job.pk))

    assert await browser.close_code() == 4403


@pytest.mark.parametrize("text", ["", "[]", "{", '{"subscribe": "cluster"}', '{"subscribe": 3, "after": 0}'])
async def test_what_is_not_understood_closes(hub: Hub, text: str) -> None:
    alice, _, _ = await cast()
    browser = await connected(alice)

    await browser.say(text)

    assert await browser.close_code() == 4400


async def test_a_slow_reader_is_closed(hub: Hub) -> None:
    alice, _, _ = await cast()
    browser = await connected(alice)
    await browser.follow(CLUSTER)
    [client] = hub._topics[CLUSTER].known

    for _ in range(200):
        client.send("{}")

    assert await browser.close_code() == 1013


async def test_permissions_end_while_the_socket_is_open(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveConsumer, "recheck_seconds", 0.05)
    alice, bob, job = await cast()
    browser = await connected(alice, await session_of(alice))
    await browser.follow(job_topic(job.pk))

    await Job.objects.filter(pk=job.pk).aupdate(owner=bob)

    assert await browser.close_code() == 4403


async def test_a_log_out_ends_the_socket(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveConsumer, "recheck_seconds", 0.05)
    alice, _, _ = await cast()
    session = await session_of(alice)
    browser = await connected(alice, session)

    await SessionStore(session.session_key).aflush()

    assert await browser.close_code() == 4401


@pytest.mark.parametrize("act", [actions.deactivate, actions.reset_password])
async def test_who_is_shut_out_loses_the_socket_at_once(hub: Hub, act: Callable[[User, int], object]) -> None:
    """Not at the next of the checks that come each minute: the change itself is heard."""
    alice, bob, _ = await cast()
    carol = await database_sync_to_async(UserFactory)(username="carol", is_staff=True)
    hers, his = [await connected(user, await session_of(user)) for user in (alice, bob)]
    for browser in (hers, his):
        await browser.follow(CLUSTER)

    await database_sync_to_async(act)(carol, alice.pk)
    hub.receive(Event(ACCOUNTS, 1, "append", {"users": [alice.pk]}))

    assert await asyncio.wait_for(hers.close_code(), 1.0) == 4401
    hub.receive(Event(CLUSTER, 1, "state", {"slots": {}}))
    assert (await his.frame())["topic"] == CLUSTER
    await his.leave()


async def test_who_was_shut_out_during_the_handshake_loses_the_socket(hub: Hub) -> None:
    alice, _, _ = await cast()
    carol = await database_sync_to_async(UserFactory)(username="carol", is_staff=True)
    session = await session_of(alice)
    await database_sync_to_async(actions.deactivate)(carol, alice.pk)

    browser = await connected(alice, session)

    assert await asyncio.wait_for(browser.close_code(), 1.0) == 4401


async def test_who_is_no_administrator_any_more_hears_no_more_of_all_jobs(hub: Hub) -> None:
    carol = await database_sync_to_async(UserFactory)(username="carol", is_staff=True)
    dora = await database_sync_to_async(UserFactory)(username="dora", is_staff=True)
    browser = await connected(carol, await session_of(carol))
    await browser.follow(JOBS)

    await database_sync_to_async(actions.change_role)(dora, carol.pk, Role.DATA_SCIENTIST)
    hub.receive(Event(ACCOUNTS, 1, "append", {"users": [carol.pk]}))

    assert await asyncio.wait_for(browser.close_code(), 1.0) == 4403


async def test_nobody_subscribes_to_what_happens_to_accounts(hub: Hub) -> None:
    alice, _, _ = await cast()
    browser = await connected(alice)

    await browser.subscribe(ACCOUNTS)

    assert await browser.close_code() == 4403
