"""Lets only our own pages open a websocket: browsers send cookies along, whoever's page asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host

__all__ = ["FullOrigin"]

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class FullOrigin:
    """Refuses a handshake whose Origin is not exactly this site's: scheme, host and port.

    Channels' own validator accepts any port and scheme of an allowed host.
    """

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        is_tls = settings.TIDEPOOL_HTTPS or scope.get("scheme") == "wss"
        if _is_ours(headers.get(b"origin", ""), headers.get(b"host", ""), "https" if is_tls else "http"):
            await self._application(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 4403})


def _is_ours(origin: str, host: str, scheme: str) -> bool:
    if origin in settings.TIDEPOOL_ORIGINS:
        return True
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS) and origin == f"{scheme}://{host}"
