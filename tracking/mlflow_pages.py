"""MLflow's pages on a host name of their own (`TIDEPOOL_MLFLOW_ORIGIN`), so that its scripts never run on the site's.

A browser that is logged in to the site is sent there and back before it is let in: that name gives it a secret, and
the site makes a ticket for this secret's digest alone, good once and for a minute. So an address with a ticket opens
nothing in another browser. There the ticket becomes a cookie of that host name, which is a row of its own in the table
of sessions: no log-in anywhere, and over with the session that it came from.
"""

import hashlib
import hmac
import re
import secrets
import time
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.sessions.backends.base import SessionBase
from django.core import signing
from django.core.handlers.asgi import ASGIRequest

from tracking.launch import PREFIX

__all__ = [
    "BROWSER",
    "COOKIE",
    "ENTER",
    "TICKET_SECONDS",
    "ask_address",
    "enter",
    "entered_user",
    "is_at_mlflow_host",
    "secret_of_browser",
    "ticket_address",
]

COOKIE = "tidepool_mlflow"
ENTER = f"{PREFIX}/enter"
#: Cookie of a browser at MLflow's host name until it is let in.
BROWSER = "tidepool_mlflow_browser"
TICKET_SECONDS = 60
#: Keys of the stored session: the site's session, and until entry the digests of ticket and browser, and the expiry.
_OF, _TICKET, _BROWSER, _UNTIL = "mlflow_of", "mlflow_ticket", "mlflow_browser", "mlflow_until"
_SALT = "tracking.entrance"


def is_at_mlflow_host(headers: dict[bytes, bytes]) -> bool:
    """Return whether a request was sent to the host name of MLflow's pages, where they have one."""
    own = urlsplit(settings.TIDEPOOL_MLFLOW_ORIGIN).netloc
    return bool(own) and headers.get(b"host", b"").decode("latin-1").lower() == own


def ask_address(site: str) -> str:
    """Return the address that sets MLflow's secret. site: origin to return to, such as https://gpus.example.org."""
    return f"{settings.TIDEPOOL_MLFLOW_ORIGIN}{ENTER}?site={signing.dumps(site, salt=_SALT)}"


def secret_of_browser(site: str, former: str) -> tuple[str, str] | None:
    """Return the browser's new secret and its next address; None: the site has not sent it.

    site: as `ask_address` gives it. former: what it keeps already, so that two of its pages may ask at once.
    """
    try:
        origin = signing.loads(site, salt=_SALT, max_age=TICKET_SECONDS)
    except signing.BadSignature:
        return None
    secret = former if re.fullmatch(r"[\w-]{43}", former, re.ASCII) else secrets.token_urlsafe(32)
    return secret, f"{origin}{PREFIX}/?browser={_digest(secret)}"


def ticket_address(request: ASGIRequest, browser: str) -> str:
    """Return the next address of a browser with this session. The part behind # in its address stays there.

    browser: the digest of the secret that it keeps at that name.
    """
    assert isinstance(request.session, SessionBase)
    ticket, row = secrets.token_urlsafe(32), _session(None)
    row.update({_OF: request.session.session_key, _TICKET: _digest(ticket), _BROWSER: browser})
    row[_UNTIL] = time.time() + TICKET_SECONDS
    row.set_expiry(request.session.get_expiry_age())
    row.create()
    return f"{settings.TIDEPOOL_MLFLOW_ORIGIN}{ENTER}?ticket={row.session_key}.{ticket}"


def enter(ticket: str, secret: str) -> str | None:
    """Take a ticket: the value of the cookie that it becomes.

    None: it is none, is too old, was made for another browser, or was shown before, by whichever browser.
    """
    key, _, rest = ticket.partition(".")
    row = _session(key)
    if not hmac.compare_digest(row.get(_TICKET, ""), _digest(rest)):
        return None
    browser, until = row.get(_BROWSER, ""), row.get(_UNTIL, 0.0)
    if not hmac.compare_digest(browser, _digest(secret)) or time.time() > until:
        row.delete()
        return None
    for name in (_TICKET, _BROWSER, _UNTIL):
        del row[name]
    row.cycle_key()  # under which nobody else knows it; the former one is gone
    return row.session_key


def entered_user(request: ASGIRequest) -> User | AnonymousUser:
    """Whom the cookie stands for, as long as the session that it came from lasts."""
    row = _session(request.COOKIES.get(COOKIE))
    if _TICKET in row or not row.get(_OF):
        return AnonymousUser()
    request.session = _session(row[_OF])
    found: Any = get_user(request)
    return found if isinstance(found, User) else AnonymousUser()


def _session(key: str | None) -> SessionBase:
    store: SessionBase = import_module(settings.SESSION_ENGINE).SessionStore(key)
    return store


def _digest(ticket: str) -> str:
    return hashlib.sha256(ticket.encode()).hexdigest()
