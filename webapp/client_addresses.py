"""Client addresses behind web servers: `X-Forwarded-For` and `-Proto` are believed from named ones alone."""

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
    """Gives the application the address of whoever asks, and none of the headers by which anybody could say another.

    proxies: addresses and networks, as in TIDEPOOL_TRUSTED_PROXIES.
    """

    def __init__(self, application: Application, proxies: Sequence[str]) -> None:
        self._application = application
        self._read_headers: Any = ProxyHeadersMiddleware(self._tell, trusted_hosts=list(proxies))  # type: ignore[arg-type]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A copy: what is read from the headers goes into it.
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
