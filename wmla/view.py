"""Base of all of WMLA's addresses: every way of authentication that its clients know, and refusals as plain text.

Its clients ask without a trailing slash or with one, send Basic with every call, a token in either of two headers, or
only the cookie of an earlier log-on. Some send a body with GET, or JSON without saying so. They print what is refused
as it came, so it is one line of text: `Error 400: <sentence>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpResponse
from django.urls import URLPattern, re_path
from django.utils.crypto import constant_time_compare, salted_hmac
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import extend_schema
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import NotFound, PermissionDenied
from rest_framework.negotiation import BaseContentNegotiation, DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from accounts.authentication import BasicLogin, BearerToken, XAuthToken
from core.errors import UserError
from core.rest import PARSERS_WITH_FILES, StrictJSONRenderer, error_response

__all__ = ["ConductorView", "Nothing", "WmlaView", "csrf_token_of", "json_body", "route", "text_answer"]

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_TEXT = "text/plain; charset=utf-8"
_MAX_TOKEN = 200


class SessionCookie(SessionAuthentication):
    """Authentication by the cookie of a log-on, also of one in the browser.

    It is `SameSite=Lax`: a browser sends it with nothing that another site makes it send, but for links that are
    followed. WMLA's own clients (`submit_job.py`) post to the deep learning addresses with the cookie alone, so these
    ask for no more. Conductor's clients do send its token, and `ConductorView` asks for it.
    """

    def enforce_csrf(self, request: Any) -> None:
        pass


class _AnyAnswer(BaseContentNegotiation):
    """Content negotiation that ignores the request: clients ask for the wrong type, or for octets and mean JSON."""

    _parsers = DefaultContentNegotiation()

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return self._parsers.select_parser(request, parsers)

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type


class WmlaView(APIView):
    """Base of the deep learning addresses."""

    authentication_classes = [BearerToken, XAuthToken, BasicLogin, SessionCookie]
    parser_classes = PARSERS_WITH_FILES
    renderer_classes = [StrictJSONRenderer]
    content_negotiation_class = _AnyAnswer

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], HttpResponse | None]:
        return _text_error


class ConductorView(WmlaView):
    """Base of Conductor's addresses: a change by the cookie alone needs the `csrftoken` that the log-on answered."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.method in _SAFE_METHODS or not isinstance(request.successful_authenticator, SessionCookie):
            return
        given = request.query_params.get("csrftoken") or request.headers.get("X-CSRFToken") or ""
        if not constant_time_compare(given[:_MAX_TOKEN], csrf_token_of(request.session.session_key or "")):
            raise PermissionDenied("The csrftoken is missing or not of this log-on: log on again, and send it.")


@extend_schema(exclude=True)
class Nothing(WmlaView):
    """View of unknown addresses, which answer in the same shape as everything else."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        raise NotFound


def csrf_token_of(session_key: str) -> str:
    """Return a token that the user knows and no other site does; it ends with the session."""
    return salted_hmac("wmla.view.csrf", session_key, algorithm="sha256").hexdigest()


def route(pattern: str, view: type[APIView], name: str) -> URLPattern:
    """Return an address with and without a slash at its end. `<exec_id>` stands for one part of it, as text."""
    regex = re.sub(r"<(\w+)>", r"(?P<\1>[^/]+)", pattern)
    return re_path(rf"^{regex}/?$", view.as_view(), name=name)


def json_body(request: Request) -> dict[str, Any]:
    """Return the JSON object that was sent, whatever type it was said to have; {} for nothing."""
    raw = request.body
    if not raw.strip():
        return {}
    try:
        given = json.loads(raw)
    except (ValueError, RecursionError):
        raise UserError("The body is no JSON: send an object.") from None
    if not isinstance(given, dict):
        raise UserError("The body is JSON, but no object: send one.")
    return given


def text_answer(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
    return HttpResponse(text, status=status, content_type=_TEXT, headers=dict(headers or {}))


def _text_error(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    response = error_response(error, context)
    if response is None:
        return None
    sentence = " ".join(str(response.data["error"]).split())
    kept = {name: response[name] for name in ("WWW-Authenticate", "Retry-After", "Allow") if response.has_header(name)}
    return text_answer(f"Error {response.status_code}: {sentence}\n", response.status_code, kept)


class _CookieScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = SessionCookie
    name = "wmlaCookie"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": "tidepool_session"}
