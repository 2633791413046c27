"""Tests of repeated requests, and of the errors for each answer."""

import re
from pathlib import Path

import httpx
import pytest
from django.utils import timezone
from tidepool.client.config import Profile
from tidepool.client.errors import (
    Conflict,
    InvalidRequest,
    NotAllowed,
    NotFound,
    NotLoggedIn,
    TidepoolError,
    Unreachable,
    WrongVersion,
    with_site,
)
from tidepool.client.http import Connection
from tidepool.client.skew import skew
from tidepool.version import VERSION, VERSION_HEADER

from tests.client.conftest import over
from tests.wmla.recorded import Answer, recorded_server
from webapp.embedded.certificate import ensure_certificate


class Site:
    """Answers with what it was given, one after the other; exceptions are raised."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.seen: list[httpx.Request] = []
        self.slept: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def connection(self) -> Connection:
        return Connection(
            Profile("http://site", "secret"), sleep=self.slept.append, transport=over(httpx.MockTransport(self))
        )


OK = httpx.Response(200, json={"id": 1})
LOST = httpx.ReadError("lost")
REFUSED = httpx.ConnectError("refused")


@pytest.mark.parametrize("first", [LOST, REFUSED, httpx.ReadTimeout("late"), httpx.Response(503), httpx.Response(502)])
def test_what_reads_is_sent_again(first: httpx.Response | Exception) -> None:
    site = Site(first, OK)
    assert site.connection().get("jobs/1/") == {"id": 1}
    assert len(site.slept) == 1


@pytest.mark.parametrize("first", [LOST, httpx.ReadTimeout("late"), httpx.Response(503)])
def test_a_submission_is_sent_again_with_the_same_key(first: httpx.Response | Exception) -> None:
    site = Site(first, OK)
    site.connection().json("POST", "jobs/", json={}, key="k" * 36)
    assert [request.headers["Idempotency-Key"] for request in site.seen] == ["k" * 36] * 2


def test_what_may_have_arrived_is_not_sent_again() -> None:
    site = Site(LOST, OK)
    with pytest.raises(Unreachable):
        site.connection().json("POST", "jobs/1/resume/")
    assert len(site.seen) == 1


@pytest.mark.parametrize("first", [REFUSED, httpx.Response(429, headers={"Retry-After": "3"})])
def test_what_cannot_have_been_done_is_sent_again(first: httpx.Response | Exception) -> None:
    site = Site(first, OK)
    site.connection().json("POST", "jobs/1/resume/")
    assert len(site.seen) == 2
    if isinstance(first, httpx.Response):
        assert site.slept == [3.0]


def test_it_gives_up() -> None:
    site = Site(REFUSED)
    connection = Connection(Profile("http://site", ""), tries_for=0.0, transport=over(httpx.MockTransport(site)))
    with pytest.raises(Unreachable):
        connection.get("me/")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequest),
        (401, NotLoggedIn),
        (403, NotAllowed),
        (404, NotFound),
        (409, Conflict),
        (413, InvalidRequest),
        (500, Unreachable),
        (302, Unreachable),
    ],
)
def test_each_refusal_has_its_class(status: int, kind: type[TidepoolError]) -> None:
    body = {"error": "It does not fit.", "code": "odd", "fields": {"name": ["No."]}}
    with pytest.raises(kind) as raised:
        Site(httpx.Response(status, json=body)).connection().get("jobs/")
    if status == 400:
        assert isinstance(raised.value, InvalidRequest)
        assert (raised.value.code, raised.value.fields) == ("odd", {"name": ["No."]})


@pytest.mark.parametrize("status", [200, 404, 500])
def test_another_site_is_told_by_its_answers(status: int) -> None:
    with pytest.raises(TidepoolError):
        Site(httpx.Response(status, text="<html>")).connection().get("jobs/")


def test_lists_are_read_over_their_pages() -> None:
    pages = [{"next": "http://site/api/v1/jobs/?after=2", "results": [1, 2]}, {"next": None, "results": [3]}]
    site = Site(*(httpx.Response(200, json=page) for page in pages))
    assert list(site.connection().rows("jobs/")) == [1, 2, 3]
    assert list(Site(httpx.Response(200, json=pages[0])).connection().rows("jobs/", most=1)) == [1]


def test_who_waits_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(REFUSED, REFUSED, REFUSED, OK)
    site.connection().get("me/")
    assert [record.getMessage() for record in caplog.records] == [
        "http://site does not answer; it is asked again for 20 s."
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "is it http://site?"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed", "--ca-file"),
    ],
)
def test_what_no_other_try_can_mend_is_said_at_once(words: str, said: str) -> None:
    site = Site(httpx.ConnectError(words), OK)
    with pytest.raises(Unreachable, match=re.escape(said)):
        site.connection().get("me/")
    assert len(site.seen) == 1


def test_an_unknown_certificate_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    files = ensure_certificate(tmp_path, ["127.0.0.1"], timezone.now())
    answers: dict[tuple[str, str], Answer | list[Answer]] = {("GET", "/api/v1/me/"): Answer({"id": 1})}
    with recorded_server(answers, certificate=files.server) as server:
        url = f"https://127.0.0.1:{server.server_address[1]}"
        with pytest.raises(Unreachable, match="--ca-file"):
            Connection(Profile(url, ""), tries_for=0.0).get("me/")
        assert Connection(Profile(url, "", ca_file=str(files.public)), tries_for=0.0).get("me/") == {"id": 1}
    with pytest.raises(InvalidRequest, match="--ca-file"):
        Connection(Profile(url, "", ca_file=str(tmp_path / "nowhere.pem"))).get("me/")


@pytest.mark.parametrize(
    ("ours", "sites", "difference"),
    [
        ("0.2.0", "0.2.0", "none"),
        ("0.2.0", "0.2.1", "slight"),
        ("0.2.0", "0.3.7", "slight"),
        ("0.3.0", "0.2.9", "slight"),
        ("0.2.0", "0.4.0", "apart"),
        ("0.4.0", "0.2.0", "apart"),
        ("0.9.0", "0.10.0", "slight"),
        ("0.9.0", "1.0.0", "apart"),
        ("0.2.0", "of yesterday", "slight"),
    ],
)
def test_how_far_two_versions_are_apart(ours: str, sites: str, difference: str) -> None:
    assert skew(ours, sites) == difference


def test_another_version_is_told_once_with_the_line_that_installs_it(caplog: pytest.LogCaptureFixture) -> None:
    answer = httpx.Response(200, json={}, headers={VERSION_HEADER: f"{VERSION}.1"})
    connection = Site(answer, answer).connection()
    connection.get("me/")
    connection.get("me/")
    [said] = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert f"pip install http://site/ui/tools/tidepool_runtime-{VERSION}.1-py3-none-any.whl" in said


def test_a_version_too_far_off_is_refused_even_where_the_site_refuses() -> None:
    with pytest.raises(WrongVersion, match=r"tidepool_runtime-99\.0\.0"):
        Site(httpx.Response(401, json={}, headers={VERSION_HEADER: "99.0.0"})).connection().get("me/")


def test_addresses_of_help_are_those_of_the_site() -> None:
    refusal = {"error": "See /help/runtime/#validate", "code": "conflict", "fields": {"split": ["See /help/jobs/."]}}
    with pytest.raises(InvalidRequest) as caught:
        Site(httpx.Response(400, json=refusal)).connection().get("jobs/")
    assert caught.value.message == "See http://site/help/runtime/#validate"
    assert caught.value.fields == {"split": ["See http://site/help/jobs/."]}
    assert (
        with_site("/mnt/help/me and /help/jobs/", "https://a.org/pool")
        == "/mnt/help/me and https://a.org/pool/help/jobs/"
    )
