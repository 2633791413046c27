"""Client addresses behind reverse proxies: `X-Forwarded-For` and `-Proto` are only trusted from configured ones."""

import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from django.conf import settings
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

__all__ = ["TrustedProxies"]

_TOLD_BY_PROXIES = (b"x-forwarded-", b"forwarded", b"x-real-ip")

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class TrustedProxies:
    """Passes the client's address to the application, and removes the headers by which a client could forge it.

    proxies: addresses and networks, as in TIDEPOOL_TRUSTED_PROXIES.
    """

    def __init__(self, application: Application, proxies: Sequence[str]) -> None:
        self._application = application
        self._read_headers: Any = ProxyHeadersMiddleware(self._tell, trusted_hosts=list(proxies))  # type: ignore[arg-type]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A copy, because the middleware writes the parsed headers into it.
        await self._read_headers({**scope, "peer": scope.get("client")}, receive, send)

    async def _tell(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope.pop("peer")
        client = scope.get("client")
        kept = [(name, value) for name, value in scope["headers"] if not name.lower().startswith(_TOLD_BY_PROXIES)]
        told = {**scope, "headers": kept, "client": client if client and _is_address(client[0]) else peer}
        if settings.TIDEPOOL_HTTPS:
            told["scheme"] = "wss" if scope["type"] == "websocket" else "https"
        await self._application(told, receive, send)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
