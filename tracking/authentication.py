"""Callers of addresses below /mlflow/: a session, a token of a user, a password, or the token of a training."""

import hashlib
import time
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser, User
from django.core.handlers.asgi import ASGIRequest
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from accounts.authentication import BasicLogin, BearerToken
from core.errors import TooMany
from core.roles import is_cluster_admin, may_change
from core.scopes import READ, job_of
from tracking.access import job_of_token
from tracking.mlflow_pages import entered_user, is_at_mlflow_host, ticket_address

__all__ = ["Caller", "Unknown", "address_with_ticket", "caller_of"]

#: A caller is known for so long without another question: a client sends many requests in a row.
_KNOWN_SECONDS = 1.0
_KNOWN_MOST = 500


@dataclass(frozen=True)
class Caller:
    user: str
    is_admin: bool = False
    #: May change nothing.
    only_reads: bool = False
    #: A browser adds the session to whatever page sends.
    by_session: bool = False
    #: The training whose run is all that this caller may touch.
    job: int | None = None


class Unknown(Exception):
    """The sender is unknown, or may not send this; the text says what to do."""


_known: dict[bytes, tuple[float, Caller]] = {}


async def caller_of(scope: dict[str, Any]) -> Caller:
    """Raises Unknown."""
    credentials = _credentials(scope)
    now = time.monotonic()
    known = _known.get(credentials)
    if known is not None and known[0] > now:
        return known[1]
    caller: Caller = await database_sync_to_async(_ask, thread_sensitive=False)(scope)
    if len(_known) >= _KNOWN_MOST:
        _known.clear()
    _known[credentials] = now + _KNOWN_SECONDS, caller
    return caller


def _credentials(scope: dict[str, Any]) -> bytes:
    """Return a digest of what says who sends this."""
    parts = [value for name, value in scope["headers"] if name in (b"authorization", b"cookie", b"host")]
    return hashlib.sha256(b"\0".join([str(scope.get("client")).encode(), *parts])).digest()


def _ask(scope: dict[str, Any]) -> Caller:
    headers = dict(scope["headers"])
    scheme, _, text = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() == "bearer" and text.startswith("tide_run_"):
        return _training(text.strip())
    request = ASGIRequest(scope, BytesIO())
    if scheme:
        return _by_header(Request(request))
    return _by_session(request)


def _training(token: str) -> Caller:
    job = job_of_token(token)
    if job is None:
        raise Unknown("The training of this token has ended or was restarted.")
    return Caller(job.owner.get_username(), job=job.pk)


def _by_header(request: Request) -> Caller:
    try:
        found = BearerToken().authenticate(request) or BasicLogin().authenticate(request)
    except (APIException, TooMany) as error:
        raise Unknown(str(error)) from None
    if found is None:
        raise Unknown("Send a token: MLFLOW_TRACKING_TOKEN.")
    user, token = found
    scope = getattr(token, "scope", "full")
    if job_of(scope) is not None:
        raise Unknown(f"The token's scope is {scope}, which does not open MLflow.")
    return _caller(user, only_reads=scope == READ)


def _by_session(request: ASGIRequest) -> Caller:
    is_there = is_at_mlflow_host(dict(request.scope["headers"]))
    user = entered_user(request) if is_there else _user_of_the_site(request)
    if not isinstance(user, User) or not user.is_active:
        raise Unknown("Log in to Tidepool, or send a token: MLFLOW_TRACKING_TOKEN.")
    return _caller(user, by_session=True)


def _user_of_the_site(request: ASGIRequest) -> User | AnonymousUser:
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(
        request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    )
    found: Any = get_user(request)
    return found if isinstance(found, User) else AnonymousUser()


async def address_with_ticket(scope: dict[str, Any], browser: str) -> str:
    """Return the address at MLflow's own host name that lets a logged-in browser in, and sets a secret there.

    browser: the secret's digest.
    """

    def make() -> str:
        request = ASGIRequest(scope, BytesIO())
        _user_of_the_site(request)
        return ticket_address(request, browser)

    address: str = await database_sync_to_async(make, thread_sensitive=False)()
    return address


def _caller(user: User, *, only_reads: bool = False, by_session: bool = False) -> Caller:
    return Caller(user.get_username(), is_cluster_admin(user), only_reads or not may_change(user), by_session)
