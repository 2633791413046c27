"""MLflow's pages on a host name of their own (`TIDEPOOL_MLFLOW_ORIGIN`), so that its scripts never run on the site's.

A browser that is logged in to the site is sent there with a ticket: good once, for a minute. There it becomes a cookie
of that host name, which is a row of its own in the table of sessions: no log-in anywhere, and over with the session
that it came from.
"""

import hashlib
import hmac
import secrets
import time
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.sessions.backends.base import SessionBase
from django.core.handlers.asgi import ASGIRequest

from tracking.launch import PREFIX

__all__ = ["COOKIE", "ENTER", "enter", "entered_user", "is_at_mlflow_host", "ticket_address"]

COOKIE = "tidepool_mlflow"
ENTER = f"{PREFIX}/enter"
_TICKET_SECONDS = 60
#: In the row: the session that it came from; until it is entered, the ticket's digest and its end.
_OF, _TICKET, _UNTIL = "mlflow_of", "mlflow_ticket", "mlflow_until"


def is_at_mlflow_host(headers: dict[bytes, bytes]) -> bool:
    """Return whether a request was sent to the host name of MLflow's pages, where they have one."""
    own = urlsplit(settings.TIDEPOOL_MLFLOW_ORIGIN).netloc
    return bool(own) and headers.get(b"host", b"").decode("latin-1").lower() == own


def ticket_address(request: ASGIRequest) -> str:
    """Where a browser with this session goes on. What stands behind # in its address stays there."""
    assert isinstance(request.session, SessionBase)
    ticket, row = secrets.token_urlsafe(32), _session(None)
    row.update({_OF: request.session.session_key, _TICKET: _digest(ticket), _UNTIL: time.time() + _TICKET_SECONDS})
    row.set_expiry(request.session.get_expiry_age())
    row.create()
    return f"{settings.TIDEPOOL_MLFLOW_ORIGIN}{ENTER}?ticket={row.session_key}.{ticket}"


def enter(query: bytes) -> str | None:
    """Take a ticket: the value of the cookie that it becomes; None: it is none, is too old, or was taken before."""
    key, _, ticket = parse_qs(query.decode("latin-1")).get("ticket", [""])[0].partition(".")
    row = _session(key)
    digest, until = row.pop(_TICKET, ""), row.pop(_UNTIL, 0.0)
    if not hmac.compare_digest(digest, _digest(ticket)) or time.time() > until:
        return None
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
