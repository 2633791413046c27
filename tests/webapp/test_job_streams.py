"""Streams of events over ASGI: told as soon as it happens, by nobody's thread, to no more than there is room for."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from channels.db import database_sync_to_async
from django.core.asgi import get_asgi_application

from accounts.tokens import make_token
from core.hub import Hub
from core.live import LIVE_CHANNEL, Event, current_seqs
from jobs.models import Job
from jobs.topics import job_topic
from tests.factories import JobFactory, UserFactory, set_job
from tests.jobs.api.test_stream import begin, end
from tests.waiting import PATIENCE_SECONDS
from webapp import consumers
from webapp.job_streams import sender
from webapp.job_streams.sender import JobStreams

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    """The process's hub, with a broker that says nothing by itself."""
    hub = Hub(database_sync_to_async(current_seqs), partial(consumers._broker_messages, LIVE_CHANNEL))
    monkeypatch.setattr(hub, "start", lambda: None)
    consumers._hubs[asyncio.get_running_loop()] = hub
    yield hub
    await hub.stop()


@pytest.fixture
def site() -> JobStreams:
    return JobStreams(get_asgi_application())


@database_sync_to_async
def cast() -> tuple[Job, str, str]:
    """A job that waits; the tokens of its owner and of somebody else."""
    alice, bob = UserFactory(username="alice"), UserFactory(username="bob")
    tokens = [make_token(user, "test", None, "read").text for user in (alice, bob)]
    return JobFactory(owner=alice), *tokens


class Follower(ApplicationCommunicator):
    def __init__(self, site: JobStreams, job: int, token: str, last: str = "") -> None:
        headers = {"host": "localhost", "authorization": f"Bearer {token}", "last-event-id": last}
        super().__init__(
            site,
            {
                "type": "http",
                "method": "GET",
                "path": f"/api/v1/jobs/{job}/stream/",
                "query_string": b"",
                "headers": [(name.encode(), value.encode()) for name, value in headers.items() if value],
            },
        )

    async def status(self) -> int:
        await self.send_input({"type": "http.request", "body": b"", "more_body": False})
        return int((await self.receive_output(PATIENCE_SECONDS))["status"])

    async def event(self) -> tuple[str, str, Any]:
        """Id, name and data of the next event."""
        while True:
            message = await self.receive_output(PATIENCE_SECONDS)
            assert message["more_body"], "the connection has ended"
            text = message["body"].decode()
            if not text.startswith(":"):
                fields = dict(line.split(": ", 1) for line in text.strip().split("\n"))
                return fields["id"], fields["event"], json.loads(fields["data"])

    async def leave(self) -> None:
        await self.send_input({"type": "http.disconnect"})
        await self.wait(PATIENCE_SECONDS)


@database_sync_to_async
def started(job: Job) -> Path:
    return begin(job, 1)


async def test_news_and_lines_come_until_the_end(hub: Hub, site: JobStreams, home: Path) -> None:
    job, token, _ = await cast()
    follower = Follower(site, job.pk, token)
    assert await follower.status() == 200
    assert (await follower.event())[2]["state"] == "PENDING"

    log = await started(job)
    hub.receive(Event(job_topic(job.pk), 1, "state", {"state": "RUNNING"}))
    assert (await follower.event())[2]["state"] == "RUNNING"
    log.write_text("one\n")
    assert (await follower.event())[1:] == ("log", {"attempt": 1, "rank": "h.0.1", "lines": ["one"]})
    log.write_text("one\ntwo\n")
    last, _, data = await follower.event()
    assert data["lines"] == ["two"]
    await follower.leave()
    assert not hub._topics

    await database_sync_to_async(end)(job)
    again = Follower(site, job.pk, token, last)
    assert await again.status() == 200
    assert [(await again.event())[1] for _ in range(2)] == ["state", "end"]
    assert not (await again.receive_output(PATIENCE_SECONDS))["more_body"]
    await again.wait(PATIENCE_SECONDS)
    assert not site._open


async def test_strangers_and_others_are_refused(hub: Hub, site: JobStreams) -> None:
    job, _, bobs = await cast()
    for token, status in (("nonsense", 401), (bobs, 404)):
        follower = Follower(site, job.pk, token)
        assert await follower.status() == status
        await follower.wait(PATIENCE_SECONDS)
    assert not site._open


async def test_it_ends_for_whom_may_not_see_it_any_more(hub: Hub, site: JobStreams) -> None:
    job, token, _ = await cast()
    follower = Follower(site, job.pk, token)
    await follower.status()
    await follower.event()
    await database_sync_to_async(lambda: Job.objects.filter(pk=job.pk).update(owner=UserFactory(username="carol")))()
    hub.receive(Event(job_topic(job.pk), 1, "state", {"priority": 7}))
    assert await follower.receive_output(PATIENCE_SECONDS) == {
        "type": "http.response.body",
        "body": b"",
        "more_body": False,
    }
    await follower.wait(PATIENCE_SECONDS)


async def test_no_more_than_there_is_room_for(hub: Hub, site: JobStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "STREAMS_OF_USER", 1)
    job, token, _ = await cast()
    first, second = (Follower(site, job.pk, token) for _ in range(2))
    assert await first.status() == 200
    await first.event()
    assert await second.status() == 429
    await second.wait(PATIENCE_SECONDS)
    await first.leave()
    third = Follower(site, job.pk, token)
    assert await third.status() == 200
    await third.event()  # Django no longer waits for the client to go: it would take the word of it
    await third.leave()


async def test_who_does_not_read_is_left(hub: Hub, site: JobStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "SLOW_SECONDS", 0.01)
    job, token, _ = await cast()
    begun, never = asyncio.Event(), asyncio.Event()

    async def receive() -> Any:
        if begun.is_set():
            await never.wait()
        begun.set()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await never.wait()

    scope = Follower(site, job.pk, token).scope
    await asyncio.wait_for(site(scope, receive, send), PATIENCE_SECONDS)
    assert not site._open
    assert not hub._topics


async def test_a_connection_ends_after_its_time_and_states_are_pinged(
    hub: Hub, site: JobStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "STREAM_SECONDS", 0.5)
    monkeypatch.setattr(sender, "PING_SECONDS", 0.0)
    job, token, _ = await cast()
    await database_sync_to_async(set_job)(job, priority=7)
    follower = Follower(site, job.pk, token)
    await follower.status()
    bodies = []
    while (message := await follower.receive_output(PATIENCE_SECONDS))["more_body"]:
        bodies.append(message["body"])
    assert b":\n\n" in bodies
    await follower.wait(PATIENCE_SECONDS)
