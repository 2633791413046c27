"""Calls of MLflow's server on behalf of a user, from code that may wait."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx
from django.conf import settings

from tracking.launch import PREFIX, SERVER_USER, proof

__all__ = ["API", "Away", "MlflowServer", "Refused", "identity"]

API = f"{PREFIX}/api/2.0/mlflow/"
_API_3 = f"{PREFIX}/api/3.0/mlflow/"


_LONGEST = 200


class Away(Exception):
    """The server does not answer, or not as it should."""


@dataclass
class Refused(Exception):
    """The server answered, and does not do it."""

    status: int
    #: MLflow's, such as RESOURCE_DOES_NOT_EXIST.
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def identity(user: str, *, is_admin: bool = False) -> dict[str, str]:
    """Return the headers by which the server believes who asks."""
    return {
        "X-Tidepool-Proof": proof(),
        "X-Tidepool-User": quote(user, safe=""),
        "X-Tidepool-Admin": "1" if is_admin else "0",
        "Host": "localhost",
    }


class MlflowServer:
    """Client of MLflow's server, not to be shared by threads. transport: the site's server by default."""

    def __init__(self, transport: httpx.BaseTransport | None = None, seconds: float = 20.0) -> None:
        transport = transport or httpx.HTTPTransport(uds=settings.TIDEPOOL_MLFLOW_SOCKET)
        self._client = httpx.Client(transport=transport, base_url="http://localhost", timeout=seconds)

    def get(self, user: str, call: str, **parameters: str) -> dict[str, Any]:
        return self._send("GET", identity(user), call, params=parameters)

    def post(self, user: str, call: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return self._send("POST", identity(user), call, json=dict(values))

    def delete(self, user: str, call: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return self._send("DELETE", identity(user), call, json=dict(values))

    def introduce(self, user: str, *, is_admin: bool) -> None:
        """Have MLflow know the user, as it does whom it has seen."""
        self._send("GET", identity(user, is_admin=is_admin), "users/current")

    def post_for_all(self, call: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Ask as an administrator, by the third version of MLflow's REST."""
        return self._send("POST", identity(SERVER_USER, is_admin=True), call, _API_3, json=dict(values))

    def get_all(self, call: str, **parameters: str) -> dict[str, Any]:
        """Ask as an administrator: what belongs to whomever."""
        return self._send("GET", identity(SERVER_USER, is_admin=True), call, params=parameters)

    def close(self) -> None:
        self._client.close()

    def _send(self, method: str, headers: dict[str, str], call: str, api: str = API, **what: Any) -> dict[str, Any]:
        """Raises Away, Refused."""
        try:
            answer = self._client.request(method, api + call, headers=headers, **what)
            # MLflow's authorization refuses in plain text.
            if answer.status_code == HTTPStatus.FORBIDDEN and not _is_json(answer):
                raise Refused(answer.status_code, "PERMISSION_DENIED", answer.text[:_LONGEST])
            values = answer.json() if answer.content else {}
        except (httpx.HTTPError, ValueError) as error:
            raise Away(f"MLflow: {error or type(error).__name__}") from None
        if answer.is_success and isinstance(values, dict):
            return values
        if answer.status_code >= 500 or not isinstance(values, dict):
            raise Away(f"MLflow answered {answer.status_code} to {call}")
        raise Refused(answer.status_code, str(values.get("error_code", "")), str(values.get("message", "")))


def _is_json(answer: httpx.Response) -> bool:
    return str(answer.headers.get("content-type", "")).startswith("application/json")
