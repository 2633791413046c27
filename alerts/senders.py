"""Sends one message to one channel. May wait for up to `_SECONDS`; never called in a request."""

import hashlib
import hmac
import json
import logging
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlencode, urlsplit

from django.conf import settings
from tidepool.version import VERSION

from alerts.addresses import slack_tokens
from alerts.alert_kinds import ChannelKind
from alerts.connection_guard import AddressRefused, guarded
from alerts.messages import Message

__all__ = ["NotDelivered", "Route", "send", "signature"]

#: Seconds for a message in all, and for each step of a connection.
_SECONDS, _STEP_SECONDS = 20.0, 10.0
#: Without a port, http.client reads one from the end of an IPv6 address.
_PORTS = {"http": 80, "https": 443}
#: Characters with which mentions and links begin in Slack's text, and what is sent instead.
_SLACK_QUOTES = {ord("<"): "‹", ord(">"): "›"}


@dataclass(frozen=True)
class Route:
    """A channel as it is needed for sending."""

    kind: str
    address: str
    secret: str


class NotDelivered(Exception):
    """The sentence says why. `is_final`: another try would end the same."""

    def __init__(self, sentence: str, *, is_final: bool = False) -> None:
        super().__init__(sentence)
        self.is_final = is_final


def send(route: Route, message: Message, now: float) -> None:
    """Raises NotDelivered. `now`: Unix seconds, for the signature."""
    plain = route.address.startswith("http:")
    # The mail server is of the operator's choice.
    networks = None if route.kind == ChannelKind.EMAIL else settings.TIDEPOOL_ALERT_NETWORKS
    senders: dict[str, Callable[[Route, Message, float], None]] = {
        ChannelKind.EMAIL: _send_mail,
        ChannelKind.SLACK: _send_to_slack,
        ChannelKind.WEBHOOK: _send_to_webhook,
    }
    try:
        with guarded(networks, plain=plain, seconds=_SECONDS):
            senders[route.kind](route, message, now)
    except AddressRefused as error:
        # The address that a host's name means here is told to nobody.
        why = "is reached without TLS" if plain else "is not public"
        raise NotDelivered(
            f"The address {why} and in no network of TIDEPOOL_ALERT_NETWORKS: ask an administrator to name it there.",
            is_final=True,
        ) from error


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the value of the header X-Tidepool-Signature: an HMAC of the timestamp, a dot and the body."""
    return "sha256=" + hmac.digest(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hex()


def _send_to_webhook(route: Route, message: Message, now: float) -> None:
    """Post JSON. Redirects are not followed: the address that was given is the one that was agreed to."""
    body, timestamp = json.dumps(message.payload).encode(), str(int(now))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"Tidepool/{VERSION}",
        "X-Tidepool-Delivery": str(message.id),
        "X-Tidepool-Timestamp": timestamp,
        "X-Tidepool-Signature": signature(route.secret, timestamp, body),
    }
    parts = urlsplit(route.address)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    connection = _connection(parts.scheme, parts.hostname or "", parts.port or _PORTS[parts.scheme])
    try:
        connection.request("POST", target, body, headers)
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        raise NotDelivered(f"No answer from the webhook ({type(error).__name__}): check its address.") from error
    finally:
        connection.close()
    if 300 <= status < 400:
        raise NotDelivered(f"The webhook answered {status}, and redirects are not followed: enter the new address.")
    if not 200 <= status < 300:
        raise NotDelivered(f"The webhook answered {status} instead of 200.")


def _connection(scheme: str, host: str, port: int) -> HTTPConnection:
    if scheme == "http":
        return HTTPConnection(host, port, timeout=_STEP_SECONDS)
    return HTTPSConnection(host, port, timeout=_STEP_SECONDS, context=ssl.create_default_context())


def _send_to_slack(route: Route, message: Message, now: float) -> None:
    tokens = "/".join(slack_tokens(route.address))
    _by_apprise(f"slack://{tokens}/?redirect=no&image=no&footer=no&timestamp=no", message, "Slack", _SLACK_QUOTES)


def _send_mail(route: Route, message: Message, now: float) -> None:
    if not settings.TIDEPOOL_MAIL_URL:
        raise NotDelivered("The site no longer has a mail server: ask an administrator to set TIDEPOOL_MAIL_URL.")
    sign = "&" if "?" in settings.TIDEPOOL_MAIL_URL else "?"
    options = urlencode({"to": route.address, "redirect": "no"})
    _by_apprise(f"{settings.TIDEPOOL_MAIL_URL}{sign}{options}", message, "The mail server", {})


def _by_apprise(url: str, message: Message, who: str, quotes: dict[int, str]) -> None:
    # Only here: it takes 0.3 s and 20 MB, and most sites have webhooks alone.
    from apprise import Apprise, NotifyFormat

    warnings = _Warnings()
    logger = logging.getLogger("apprise")
    # The library's own lines may hold addresses, which no log may show.
    logger.propagate = False
    logger.addHandler(warnings)
    try:
        service = Apprise.instantiate(url)
        if not service:
            raise NotDelivered(f"{who}: the address is invalid. Add the channel again.", is_final=True)
        texts = {"title": message.title.translate(quotes), "body": message.text.translate(quotes)}
        if not service.notify(**texts, body_format=NotifyFormat.TEXT):
            raise NotDelivered(f"{who} rejected the message. {warnings.newest}".strip()[:300])
    finally:
        logger.removeHandler(warnings)


class _Warnings(logging.Handler):
    """Keeps the newest warning of this thread, by which Apprise says why a message was not taken."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.newest = ""
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.newest = record.getMessage()[:200]
