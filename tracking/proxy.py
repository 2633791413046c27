"""`/mlflow/`: asks who sends a request and whether that user may, and passes it on to MLflow's server, or to the files.

It stands before Django, which would put each body on the disk first. MLflow's server believes what this says of the
user, and nobody else: headers of that kind that a client sends do not pass.
"""

import json
import logging
import re
import sys
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from math import isfinite
from typing import Any
from urllib.parse import quote

import httpx
from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user_model
from django.urls import reverse

from core.origins import is_own_origin, own_origin
from tracking import call_rules, training_calls
from tracking.authentication import Caller, Unknown, address_with_ticket, caller_of
from tracking.file_calls import Files
from tracking.launch import PREFIX
from tracking.mlflow_pages import (
    BROWSER,
    COOKIE,
    ENTER,
    TICKET_SECONDS,
    ask_address,
    enter,
    is_at_mlflow_host,
    secret_of_browser,
)
from tracking.proxied_call import Answered, Exchange, Header, Receive, Scope, Send, error_of
from tracking.upstream import identity

__all__ = ["TrackingProxy"]

logger = logging.getLogger(__name__)

# httpcore imports this four times in each call. Where it is missing that searches the whole path, a third of the
# processor time that a call takes here.
if find_spec("sniffio") is None:
    sys.modules["sniffio"] = None  # type: ignore[assignment]

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Pages of the site that descriptions of runs lead to.
_DESCRIBED = re.compile(r"/(jobs|studies)/[1-9][0-9]{0,17}/")
#: Passed on, and nothing else.
_ASKED = (b"accept", b"accept-encoding", b"content-type", b"user-agent", b"if-none-match", b"if-modified-since")
_NOT_ANSWERED = frozenset({b"connection", b"date", b"server", b"set-cookie", b"transfer-encoding", b"www-authenticate"})
#: For the first byte of an answer.
_SECONDS = 60.0
_AWAY = (
    "MLflow does not answer at the moment. Trainings continue, and their logged values arrive later: try again in a "
    "minute."
)


class TrackingProxy:
    """Hands what is below /mlflow/ to MLflow, where the site has it, and everything else to the application."""

    def __init__(self, application: Application, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._application = application
        self._transport = transport
        self._client: httpx.AsyncClient | None = None
        self._loop: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, exchange = scope["path"], Exchange(scope, receive, send)
        is_elsewhere = path != PREFIX and not path.startswith(f"{PREFIX}/")
        if not settings.TIDEPOOL_MLFLOW_SOCKET or (is_elsewhere and not is_at_mlflow_host(exchange.headers)):
            await self._application(scope, receive, send)
            return
        try:
            await self._answer(exchange)
        except Answered as refusal:
            if not exchange.has_begun:
                await exchange.refuse(refusal.status, refusal.sentence)
        except httpx.HTTPError as error:
            if exchange.has_begun:
                raise  # the server closes the connection, and so the client sees that the rest is missing
            logger.warning("MLflow does not answer: %s", error or type(error).__name__)
            await exchange.refuse(503, _AWAY)

    async def _answer(self, exchange: Exchange) -> None:
        is_there = is_at_mlflow_host(exchange.headers)
        if is_there and exchange.path == ENTER:
            await self._enter(exchange)
            return
        if exchange.path == PREFIX or (is_there and exchange.path == "/"):
            await _redirect(exchange, f"{PREFIX}/")
            return
        if not exchange.path.startswith(f"{PREFIX}/"):
            if _DESCRIBED.fullmatch(exchange.path):
                await _redirect(exchange, f"{_site()}{exchange.path}")
                return
            raise Answered(404, "This host name serves only MLflow: Tidepool has another one.")
        try:
            caller = await caller_of(exchange.scope)
        except Unknown as error:
            await self._send_away(exchange, str(error))
            return
        if settings.TIDEPOOL_MLFLOW_ORIGIN and caller.by_session and not is_there:
            await self._send_to_own_host(exchange)
            return
        _refuse_foreign(exchange, caller)
        if caller.only_reads and not call_rules.is_read(exchange.method, exchange.path):
            raise Answered(403, "You may read everything here, but change nothing.")
        files = Files(exchange, caller, self._ask)
        if await files.answer():
            return
        call = call_rules.call_of(exchange.path)
        if call is None:
            raise Answered(404, "This address of MLflow is not open here: users, roles and passwords are Tidepool's.")
        body = await exchange.body()
        values = _requested(body) if exchange.method not in ("GET", "HEAD") and call else {}
        if reason := call_rules.refused_values(call, values):
            raise Answered(403, reason)
        await _refuse_names_of_others(caller, call_rules.users_of_names(call, values))
        if call == "model-versions/create":
            await files.refuse_foreign_source(str(values.get("source", "")))
        if caller.job is None:
            await self._pass_on(exchange, caller, json.dumps(values).encode() if values else body)
            return
        await training_calls.answer(exchange, caller, call, values, self._ask)

    async def _send_away(self, exchange: Exchange, sentence: str) -> None:
        """Redirect to the log-in, where somebody opens a page."""
        if _is_page(exchange) and not is_at_mlflow_host(exchange.headers):
            target = f"{reverse(settings.LOGIN_URL)}?next={quote(exchange.path)}"
            await _redirect(exchange, target)
            return
        raise Answered(401, sentence)

    async def _send_to_own_host(self, exchange: Exchange) -> None:
        """Refuse MLflow's pages on the site's own host name, where their scripts could do all that their reader may."""
        if not _is_page(exchange):
            raise Answered(403, f"MLflow's pages are at {settings.TIDEPOOL_MLFLOW_ORIGIN}{PREFIX}/.")
        browser = exchange.question("browser")
        if re.fullmatch("[0-9a-f]{64}", browser):
            await _redirect(exchange, await address_with_ticket(exchange.scope, browser))
            return
        host, is_tls = _host_of(exchange)
        site = own_origin(host, is_tls=is_tls)
        if site is None:
            raise Answered(400, "This site does not use the host name of the request.")
        await _redirect(exchange, ask_address(site))

    async def _enter(self, exchange: Exchange) -> None:
        """Give a browser a secret and send it back to the site, or let it in with a ticket for this secret."""
        secret = exchange.cookie(BROWSER)
        if asked := secret_of_browser(exchange.question("site"), secret):
            await _redirect(exchange, asked[1], _cookie(BROWSER, asked[0], f"{ENTER}; Max-Age={TICKET_SECONDS}"))
            return
        value = await database_sync_to_async(enter, thread_sensitive=False)(exchange.question("ticket"), secret)
        if exchange.method != "GET" or value is None:
            raise Answered(
                403,
                "This address worked once, for a minute and in one browser: open MLflow from Tidepool's pages again.",
            )
        await _redirect(exchange, f"{PREFIX}/", _cookie(COOKIE, value, PREFIX))

    async def _pass_on(self, exchange: Exchange, caller: Caller, body: bytes) -> None:
        headers = [(name, value) for name, value in exchange.headers.items() if name in _ASKED]
        mine = [
            (name.encode(), value.encode()) for name, value in identity(caller.user, is_admin=caller.is_admin).items()
        ]
        question = exchange.scope["query_string"].decode("latin-1")
        url = f"http://localhost{quote(exchange.path)}{'?' if question else ''}{question}"
        client = self._client_here()
        request = client.build_request(exchange.method, url, headers=[*headers, *mine], content=body)
        answer = await client.send(request, stream=True)
        try:
            kept = [(name.lower(), value) for name, value in answer.headers.raw if name.lower() not in _NOT_ANSWERED]
            await exchange.begin(answer.status_code, kept)
            async for piece in answer.aiter_raw():
                await exchange.write(piece, has_more=True)
            await exchange.write(b"", has_more=False)
        finally:
            await answer.aclose()

    async def _ask(self, caller: Caller, method: str, path: str, values: dict[str, Any]) -> tuple[int, Any]:
        """Status and JSON of a call of our own, below `/mlflow/api/`."""
        what: dict[str, Any] = {"params": values} if method == "GET" else {"json": values}
        headers = identity(caller.user, is_admin=caller.is_admin)
        answer = await self._client_here().request(
            method, f"http://localhost{PREFIX}/api/{path}", headers=headers, **what
        )
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        # MLflow's auth app refuses in plain text.
        return answer.status_code, _values(answer.content) if is_json else error_of(answer.status_code, answer.text)

    def _client_here(self) -> httpx.AsyncClient:
        """One for each event loop that this runs on: in a server there is one."""
        loop = get_running_loop()
        if self._client is None or self._loop is not loop:
            transport = self._transport or httpx.AsyncHTTPTransport(
                uds=settings.TIDEPOOL_MLFLOW_SOCKET,
                limits=httpx.Limits(max_connections=64, max_keepalive_connections=16),
            )
            self._client, self._loop = httpx.AsyncClient(transport=transport, timeout=_SECONDS), loop
        return self._client


def _is_page(exchange: Exchange) -> bool:
    return exchange.path == f"{PREFIX}/" and b"text/html" in exchange.headers.get(b"accept", b"")


def _site() -> str:
    """Return the address where people reach the site, or else the one that trainings use."""
    return str(settings.TIDEPOOL_SITE_URL or settings.TIDEPOOL_MLFLOW_URL.removesuffix(PREFIX))


def _host_of(exchange: Exchange) -> tuple[str, bool]:
    """Return the host name and port that a request was sent to, and whether by TLS."""
    return exchange.headers.get(b"host", b"").decode("latin-1"), exchange.scope.get("scheme") == "https"


def _cookie(name: str, value: str, path: str) -> Header:
    """Return a cookie of MLflow's host name. path: and what else is to follow it."""
    secure = "; Secure" if settings.TIDEPOOL_MLFLOW_ORIGIN.startswith("https:") else ""
    return b"set-cookie", f"{name}={value}; Path={path}; HttpOnly; SameSite=Lax{secure}".encode()


async def _redirect(exchange: Exchange, target: str, *more: Header) -> None:
    await exchange.answer(302, b"", b"text/plain", (b"location", target.encode()), *more)


def _refuse_foreign(exchange: Exchange, caller: Caller) -> None:
    """Refuse requests from pages of another site: the browser adds the session."""
    origin = exchange.headers.get(b"origin")
    if origin is None or not caller.by_session or exchange.method in ("GET", "HEAD"):
        return
    if is_at_mlflow_host(exchange.headers):
        is_own = origin.decode("latin-1") == settings.TIDEPOOL_MLFLOW_ORIGIN
    else:
        host, is_tls = _host_of(exchange)
        is_own = is_own_origin(origin.decode("latin-1"), host, is_tls=is_tls)
    if not is_own:
        raise Answered(403, "The request was sent from a page of another site.")


async def _refuse_names_of_others(caller: Caller, users: set[str]) -> None:
    """Refuse to make an experiment below another user's name. A name that is no user's is anybody's."""
    for user in () if caller.is_admin else sorted(users - {caller.user}):
        if await get_user_model().objects.filter(username=user).aexists():
            sentence = f"Experiments in /Users/{user} are those of {user}: choose a name in /Users/{caller.user}."
            raise Answered(403, sentence)


def _requested(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a request's body; {} for none. Raises Answered for what is none, and for text that
    cannot be sent on."""
    values = _values(body)
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Answered(400, "The body has half a surrogate pair, which is no character.") from None
    return values


def _values(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body; {} for none. Numbers that are not finite are texts, as in protobuf's JSON.

    Raises Answered for what is none.
    """
    if not body:
        return {}
    try:
        values = json.loads(body, parse_constant=str, parse_float=_number)
    except (ValueError, RecursionError):
        raise Answered(400, "The body is not JSON, or is nested too deep.") from None
    if not isinstance(values, dict):
        raise Answered(400, "The body is not a JSON object.")
    return values


def _number(text: str) -> float | str:
    """Return the number, as a text where it is too large: `1e400`."""
    value = float(text)
    return value if isfinite(value) else f"{'-' if value < 0 else ''}Infinity"
