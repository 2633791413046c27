"""Refusal of a submission before its upload is read.

Django gets a request only after its whole body has arrived. A wrong address or login is known earlier, so the request
is first passed to the view without a body, and a refusal is returned at once. The same applies to URLs to which WMLA
accepts uploads, but Tidepool does not.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from accounts.body_limits import announced_bytes
from wmla.unsupported import refuses_uploads
from wmla.uploads import PREFLIGHT

__all__ = ["Preflight"]

_BASE = "/platform/rest/deeplearning/v1/"
_ACCEPTED = 204
#: Addresses that take files.
_SUBMISSIONS = ("execs", "hypersearch", "hypersearch/algorithm", "hypersearch/algorithm/install")
_BODY_HEADERS = frozenset({b"content-length", b"content-type", b"transfer-encoding"})

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]


class Preflight:
    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        refusal = None
        if scope["method"] == "POST" and _may_be_refused(scope["path"]):
            refusal = await self._judge(scope)
        if refusal is None:
            await self._application(scope, receive, send)
            return
        for message in refusal:
            await send(message)

    async def _judge(self, scope: dict[str, Any]) -> list[Message] | None:
        """Return the messages of a refusal; None: read the upload."""
        answer: list[Message] = []

        messages: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

        async def nothing() -> Message:
            if not messages:
                await asyncio.Future()  # Django waits for a disconnect until it has answered
            return messages.pop()

        async def collect(message: Message) -> None:
            answer.append(message)

        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in _BODY_HEADERS]
        await self._application({**scope, "headers": headers, PREFLIGHT: announced_bytes(scope)}, nothing, collect)
        return None if answer[0]["status"] == _ACCEPTED else answer


def _may_be_refused(path: str) -> bool:
    """Return whether the request may be refused by its URL alone: a submission, or an unsupported upload."""
    address = path.removeprefix(_BASE)
    return address != path and (address.rstrip("/") in _SUBMISSIONS or refuses_uploads(address))
