"""Tests of clients that wait for a training while its site does not answer, for minutes or for a night."""

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from tidepool.client import following, http, patience, training
from tidepool.client.api import Client
from tidepool.client.errors import NotLoggedIn, Unreachable
from tidepool.client.http import Connection
from tidepool.client.training import Job as ClientJob
from tidepool.client.wire import Request, Response, TransportError
from tidepool.distributor import TorchDistributor
from tidepool.notebook.magics import TidepoolMagics

from tests.client.test_functions import _leave
from tests.scene import Scene

pytestmark = pytest.mark.django_db

NIGHT = 10 * 3600.0


class Clock:
    """A clock that only sleeping and lost requests advance."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class Site:
    """The site in this process, which does not answer in the given spans of time."""

    def __init__(self, clock: Clock, inner: Callable[[Request], Response]) -> None:
        self._clock, self._inner = clock, inner
        #: Path of a request -> seconds for which the site is away from that request on, once.
        self.leaves_at: dict[str, float] = {}
        self.back_at = 0.0

    def __call__(self, request: Request) -> Response:
        for path in [path for path in self.leaves_at if path in request.target]:
            self.back_at = self._clock.now + self.leaves_at.pop(path)
        if self._clock.now < self.back_at:
            self._clock.sleep(1.0)
            raise TransportError("connection refused")
        return self._inner(request)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (following, http, patience, training):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def site(alices: Client, scene: Scene, home: Any, clock: Clock) -> Site:
    """One whose training has ended with a value."""
    _leave(scene.done, {"accuracy": 97.1})
    made = Site(clock, alices.connection.transport)
    alices.connection = Connection(alices.profile, transport=made, sleep=clock.sleep)
    return made


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name in ("TorchDistributor", "tidepool")]


def distributor_of(client: Client, job: int, monkeypatch: pytest.MonkeyPatch) -> TorchDistributor:
    made = TorchDistributor(client=client)
    monkeypatch.setattr(made, "submit", lambda *given: client.job(job))
    return made


@pytest.mark.parametrize("request_path", ["/stream/", "files/download/"])
def test_run_returns_the_value_however_long_the_site_was_away(
    alices: Client, scene: Scene, site: Site, monkeypatch: pytest.MonkeyPatch, request_path: str
) -> None:
    made = distributor_of(alices, scene.done.pk, monkeypatch)
    site.leaves_at = {request_path: NIGHT}
    assert made.run(len) == {"accuracy": 97.1}


@pytest.mark.parametrize("request_path", ["/stream/", "files/download/"])
def test_a_job_gives_its_value_however_long_the_site_was_away(
    alices: Client, scene: Scene, site: Site, request_path: str
) -> None:
    site.leaves_at = {request_path: NIGHT}
    assert alices.job(scene.done.pk).value() == {"accuracy": 97.1}
    site.leaves_at = {"/stream/": NIGHT}
    assert alices.job(scene.done.pk).wait().is_over


def test_a_cell_gets_its_names_however_long_the_site_was_away(
    alices: Client, scene: Scene, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.leaves_at = {"/stream/": NIGHT}
    TidepoolMagics(InteractiveShell())._follow(alices.job(scene.done.pk))
    assert f"`%tidepool fetch {scene.done.pk}` waits again." in capsys.readouterr().err


@pytest.mark.parametrize(("away", "lines"), [(20.0, 0), (29.0, 0), (100.0, 1), (NIGHT, 1)])
def test_a_line_tells_of_an_outage_after_30_s_and_once(
    alices: Client,
    scene: Scene,
    site: Site,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    away: float,
    lines: int,
) -> None:
    made = distributor_of(alices, scene.done.pk, monkeypatch)
    told_at: list[float] = []

    class Clocked(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "has not answered for" in record.getMessage():
                told_at.append(clock.now)

    handler = Clocked()
    made.logger.addHandler(handler)
    try:
        begun = clock.now
        site.leaves_at = {"/stream/": away}
        made.run(len)
    finally:
        made.logger.removeHandler(handler)
    assert len(told_at) == lines
    assert all(at - begun >= 30.0 for at in told_at)
    assert len([line for line in said(caplog) if f"tidepool.job({scene.done.pk}).value()" in line]) == lines


def test_a_wait_with_a_limit_gives_up_after_it_and_names_the_value(
    alices: Client, scene: Scene, site: Site, clock: Clock
) -> None:
    job = alices.job(scene.waiting.pk)
    begun = clock.now
    with pytest.raises(TimeoutError, match=rf"after 7 s.*`tidepool\.job\({job.id}\)\.value\(\)`"):
        job.value(timeout=7)
    assert clock.now - begun >= 7
    site.back_at = clock.now + NIGHT
    begun = clock.now
    with pytest.raises(TimeoutError, match=r"does not answer.*\.value\(\)`"):
        job.value(timeout=60)
    assert 60 <= clock.now - begun < 120


def test_an_error_that_no_time_heals_is_raised(alices: Client, scene: Scene, site: Site) -> None:
    alices.connection._headers["Authorization"] = "Bearer wrong"
    with pytest.raises(NotLoggedIn):
        alices.job(scene.done.pk).value()


def test_a_change_is_no_wait(alices: Client, scene: Scene, site: Site, clock: Clock) -> None:
    """Requests other than waits end after their 20 s."""
    job: ClientJob = alices.job(scene.done.pk)
    site.back_at = clock.now + NIGHT
    with pytest.raises(Unreachable):
        job.refresh()
