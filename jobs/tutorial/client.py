"""The few REST calls that the tutorial makes, with the standard library."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

__all__ = ["Api", "ApiError"]

_ANSWER_SECONDS = 30.0


class ApiError(RuntimeError):
    """The server refused, or was not there; the sentence is what it said."""


class Api:
    """JSON over `<site>/api/v1/`."""

    def __init__(self, site: str, authorization: str) -> None:
        if urllib.parse.urlsplit(site).scheme not in ("http", "https"):
            raise ApiError(f"{site!r} is not the address of a site: give one such as http://127.0.0.1:8000.")
        self._root = f"{site.rstrip('/')}/api/v1/"
        self._authorization = authorization
        # A proxy set for downloads has no business between us and this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str, **query: str | int) -> Any:
        return self._send("GET", f"{path}?{urllib.parse.urlencode(query)}" if query else path)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._send("POST", path, body or {})

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        return self._send("PATCH", path, body)

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(  # noqa: S310 (the scheme was checked)
            self._root + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": self._authorization, "Content-Type": "application/json"},
        )
        try:
            with self._opener.open(request, timeout=_ANSWER_SECONDS) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise ApiError(f"{method} {path}: {_sentence(error)}") from None
        except OSError as error:
            raise ApiError(f"{self._root} does not answer ({error}): is Tidepool running there?") from None
        return json.loads(text) if text else None


def _sentence(error: urllib.error.HTTPError) -> str:
    try:
        said = json.loads(error.read())
        fields = [sentence for sentences in said.get("fields", {}).values() for sentence in sentences]
        return " ".join([said["error"], *fields])
    except (ValueError, KeyError, AttributeError, TypeError):
        return f"status {error.code}"
