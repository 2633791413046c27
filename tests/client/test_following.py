"""Tests of following a job: by a stream that is cut anywhere, and by asking where none comes through."""

import json
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import httpx
import pytest
from tidepool.client import following
from tidepool.client.api import Client
from tidepool.client.config import Profile
from tidepool.client.errors import NotFound, Unreachable
from tidepool.client.following import Change, Follower, ServerEvent, parsed
from tidepool.client.http import Connection
from tidepool.client.rows import JobInfo, LogLine
from tidepool.client.wire import Request, Response, TransportError

from jobs.models import Job
from tests.jobs.api.test_stream import begin, end
from tests.scene import Scene

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following.time, "sleep", lambda seconds: None)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_events_are_the_same_however_they_are_cut(size: int) -> None:
    first, second = 'id: 1.2.3.h\nevent: log\ndata: {"lines":["ä"]}\n\n', "id: 2\r\nevent: end\r\ndata: {}\r\n\r\n"
    text = f"{first}:\n\n{second}event: hal".encode()
    pieces = (text[place : place + size] for place in range(0, len(text), size))
    assert list(parsed(pieces)) == [
        ServerEvent("log", "1.2.3.h", '{"lines":["ä"]}'),
        None,
        ServerEvent("end", "2", "{}"),
    ]


class Cut:
    """A site in this process whose every answer breaks off after so many bytes, growing."""

    def __init__(self, inner: Callable[[Request], Response]) -> None:
        self.inner, self.asked = inner, 0
        self.targets: list[str] = []

    def __call__(self, request: Request) -> Response:
        self.targets.append(request.target)
        answer = self.inner(request)
        if "/stream/" not in request.target:
            return answer
        self.asked += 1
        content = answer.read()
        most = 3000 + 700 * self.asked

        class Body(BytesIO):
            def read1(self, size: int | None = -1) -> bytes:
                piece = super().read1(size)
                if not piece and len(content) > most:
                    raise OSError("cut")
                return piece

        return Response(answer.status_code, "", answer.headers, Body(content[:most]), lambda _: None)


def texts(changes: Iterator[Change]) -> list[str]:
    return [each.text for each in changes if isinstance(each, LogLine)]


def test_a_stream_that_is_cut_again_and_again_loses_and_doubles_nothing(
    alices: Client, scene: Scene, home: Any
) -> None:
    job = scene.waiting
    wanted = [f"line {number} {'x' * 100}" for number in range(200)]
    begin(job, 1).write_text("\n".join(wanted[:150]) + "\n")
    begin(job, 2, "h.0.2").write_text("\n".join(wanted[150:]))
    end(job)
    cut = Cut(alices.connection.transport)
    follower = Follower(Connection(alices.profile, transport=cut, tries_for=0.0), job.pk, place=None)
    follower._id = "1.0.0.h.0.1"  # told nothing yet, of the first attempt
    assert texts(follower.changes()) == wanted
    assert cut.asked > 1


def answer(status: int, **more: Any) -> Response:
    given = httpx.Response(status, **more)
    return Response(status, given.reason_phrase, given.headers, BytesIO(given.content), lambda _: None)


@pytest.mark.parametrize(
    "instead",
    [
        lambda: answer(404, json={"error": "There is nothing at this address.", "code": "not_found"}),
        lambda: answer(200, text="<html>"),
        lambda: answer(429, json={"error": "So many are followed.", "code": "throttled"}),
        lambda: answer(200, headers={"content-type": "text/event-stream"}, text=""),
    ],
)
def test_where_no_stream_comes_through_it_is_asked(
    alices: Client, scene: Scene, home: Any, instead: Callable[[], Response]
) -> None:
    job, inner = scene.waiting, alices.connection.transport
    begin(job, 1).write_text("one\ntwo")
    end(job)
    silent = instead().status_code == 200 and "event-stream" in str(instead().headers.get("content-type"))

    def send(request: Request) -> Response:
        if "/stream/" not in request.target:
            return inner(request)
        found = instead()
        if silent:
            found._body.read1 = lambda size: (_ for _ in ()).throw(OSError("timed out"))  # type: ignore[attr-defined]
        return found

    changes = list(Follower(Connection(alices.profile, transport=send, tries_for=0.0), job.pk).changes())
    assert texts(iter(changes)) == ["one", "two"]
    assert any(isinstance(each, JobInfo) and each.is_over for each in changes)


def test_polling_goes_on_where_the_stream_was(alices: Client, scene: Scene, home: Any) -> None:
    job, inner, asked = scene.waiting, alices.connection.transport, []
    log = begin(job, 1)
    log.write_text("one\n")

    def send(request: Request) -> Response:
        if "/stream/" not in request.target:
            return inner(request)
        asked.append(request.headers.get("Last-Event-ID"))
        if len(asked) == 1:
            found = inner(request)
            found.read()
            log.write_text("one\ntwo\n")
            end(job)
            return Response(200, "", found.headers, BytesIO(found.read()), lambda _: None)
        return answer(502, text="")

    follower = Follower(Connection(alices.profile, transport=send, tries_for=0.0), job.pk)
    assert texts(iter_until_lost(follower)) == ["one"]
    assert asked[1].startswith("1.4.")
    follower._has_stream = False
    assert texts(follower.changes()) == ["two"]


def iter_until_lost(follower: Follower) -> Iterator[Change]:
    with pytest.raises(Unreachable):
        yield from follower.changes()


def test_a_job_that_is_not_there_is_not_found(alices: Client) -> None:
    with pytest.raises(NotFound):
        list(Follower(alices.connection, 10**6).changes())


def test_a_site_that_is_away_is_unreachable() -> None:
    def lost(request: Request) -> Response:
        raise TransportError("lost")

    connection = Connection(Profile("http://site", ""), transport=lost, tries_for=0.0)
    with pytest.raises(Unreachable):
        list(Follower(connection, 1).changes())


def test_waiting_and_following_take_the_stream(alices: Client, scene: Scene, home: Any) -> None:
    begin(scene.waiting, 1).write_text("one\n")
    end(scene.waiting)
    cut = Cut(alices.connection.transport)
    alices.connection.transport = cut
    job = alices.job(scene.waiting.pk)
    assert list(job.logs(follow=True)) == ["one"]
    assert job.wait(60).state == Job.objects.get(pk=scene.waiting.pk).state
    assert all("/stream/" in target for target in cut.targets[:1])
    assert json.dumps(cut.targets).count("logs/lines") == 0


def test_the_last_lines_and_what_follows(alices: Client, scene: Scene, home: Any) -> None:
    log = begin(scene.waiting, 1)
    lines = [f"line {number} {'x' * 200}" for number in range(1000)]
    log.write_text("\n".join(lines))
    job = alices.job(scene.waiting.pk)
    assert list(job.logs(tail=600)) == lines[-600:]
    assert list(job.logs(tail=0)) == []
    end(scene.waiting)
    # The line that had not ended comes with what follows.
    assert list(job.logs(tail=2, follow=True)) == lines[-3:]
