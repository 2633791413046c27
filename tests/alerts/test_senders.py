"""Messages on their way: signed webhooks, Slack and mail by Apprise, and connections that are refused."""

import hashlib
import hmac
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from alerts.alert_kinds import ChannelKind
from alerts.connection_guard import AddressRefused, guarded
from alerts.messages import Message
from alerts.senders import NotDelivered, Route, send
from tests.alerts.receivers import Hook, mail_server, web_receiver

MESSAGE = Message(17, "Training 5 (digits) failed", "It <ended>.", {"id": 17, "title": "…"})
SLACK = "https://hooks.slack.com/services/T0AAAAAAA/B0BBBBBBB/abcDEF123abcDEF123abcDEF"


@pytest.fixture
def hook() -> Iterator[Hook]:
    with web_receiver() as receiver:
        yield receiver


@pytest.fixture
def loopback_allowed(settings: Any) -> None:
    settings.TIDEPOOL_ALERT_NETWORKS = ["127.0.0.0/8"]


def refusal_of(route: Route) -> NotDelivered:
    with pytest.raises(NotDelivered) as refused:
        send(route, MESSAGE, 0)
    return refused.value


@pytest.mark.usefixtures("loopback_allowed")
def test_a_webhook_is_signed_over_timestamp_and_body(hook: Hook) -> None:
    send(Route(ChannelKind.WEBHOOK, f"{hook.url}?key=1", "secret"), MESSAGE, 1700000000.9)
    [(path, headers, body)] = hook.requests
    assert (path, hook.bodies) == ("/hook?key=1", [MESSAGE.payload])
    assert (headers["x-tidepool-delivery"], headers["x-tidepool-timestamp"]) == ("17", "1700000000")
    expected = hmac.new(b"secret", b"1700000000." + body, hashlib.sha256).hexdigest()
    assert headers["x-tidepool-signature"] == f"sha256={expected}"


@pytest.mark.usefixtures("loopback_allowed")
def test_other_answers_than_2xx_are_failures_and_redirects_are_not_followed(hook: Hook) -> None:
    hook.answers = [503, hook.url]
    route = Route(ChannelKind.WEBHOOK, hook.url, "secret")
    assert "503" in str(refusal_of(route))
    assert "redirects are not followed" in str(refusal_of(route))
    assert len(hook.requests) == 2


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_loopback_is_refused_before_a_connection_is_made(hook: Hook, host: str) -> None:
    """Also by a name, which is looked at as it is resolved at that moment."""
    refused = refusal_of(Route(ChannelKind.WEBHOOK, hook.url.replace("127.0.0.1", host), "secret"))
    assert refused.is_final
    assert "TIDEPOOL_ALERT_NETWORKS" in str(refused)
    assert hook.requests == []


def test_an_ipv6_address_without_a_port_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def refuse(address: object, *_: object, **__: object) -> None:
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    refusal_of(Route(ChannelKind.WEBHOOK, "https://[2606:4700::1111]/hook", "secret"))
    assert asked == [("2606:4700::1111", 443)]


def test_a_name_that_means_another_address_at_the_second_look_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal does not tell which one: users could map the site's network by the names in it."""
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.20.30.40", 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: answer)
    refused = refusal_of(Route(ChannelKind.WEBHOOK, "https://intranet.example.org/", "secret"))
    assert refused.is_final
    assert "TIDEPOOL_ALERT_NETWORKS" in str(refused)
    assert "10.20" not in repr(refused)


def test_what_a_library_swallows_is_refused_all_the_same(hook: Hook) -> None:
    port = int(hook.url.rpartition(":")[2].partition("/")[0])
    with pytest.raises(AddressRefused), guarded([], plain=False, seconds=5), suppress(Exception):
        socket.create_connection(("127.0.0.1", port)).close()
    # Nobody else is watched.
    socket.create_connection(("127.0.0.1", port)).close()


def test_a_receiver_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, guarded(["127.0.0.0/8"], plain=True, seconds=0.1):
        connection = socket.create_connection(silent.getsockname())
        assert connection.recv(1) == b"", "it was broken off"
        connection.close()


@pytest.mark.usefixtures("loopback_allowed")
def test_slack_is_told_by_apprise(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    from apprise.plugins.slack import NotifySlack

    monkeypatch.setattr(NotifySlack, "webhook_url", hook.url)
    send(Route(ChannelKind.SLACK, SLACK, ""), MESSAGE, 0)
    [(path, _, body)] = hook.requests
    assert path == "/hook/T0AAAAAAA/B0BBBBBBB/abcDEF123abcDEF123abcDEF"
    assert MESSAGE.title in body.decode()
    assert "‹ended›" in json.dumps(json.loads(body), ensure_ascii=False)


def test_slack_behind_a_private_address_is_refused(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    from apprise.plugins.slack import NotifySlack

    monkeypatch.setattr(NotifySlack, "webhook_url", hook.url)
    assert refusal_of(Route(ChannelKind.SLACK, SLACK, "")).is_final
    assert hook.requests == []


@pytest.mark.usefixtures("loopback_allowed")
def test_a_redirect_of_slack_is_not_followed(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    from apprise.plugins.slack import NotifySlack

    monkeypatch.setattr(NotifySlack, "webhook_url", hook.url)
    hook.answers = ["http://127.0.0.1:1/"]
    assert "Slack rejected the message" in str(refusal_of(Route(ChannelKind.SLACK, SLACK, "")))


def test_mail_goes_by_the_sites_server(settings: Any) -> None:
    with mail_server() as (port, lines):
        settings.TIDEPOOL_MAIL_URL = f"mailto://127.0.0.1:{port}?from=tidepool@example.org"
        send(Route(ChannelKind.EMAIL, "ada@example.org", ""), MESSAGE, 0)
    text = "\n".join(lines)
    assert "rcpt TO:<ada@example.org>" in text
    assert f"Subject: {MESSAGE.title}" in text


def test_mail_without_a_server_says_so(settings: Any) -> None:
    settings.TIDEPOOL_MAIL_URL = ""
    assert "TIDEPOOL_MAIL_URL" in str(refusal_of(Route(ChannelKind.EMAIL, "ada@example.org", "")))
