"""Base class of all WMLA views: the authentication methods of its clients, and errors as plain text.

Clients request URLs with or without a trailing slash, and send Basic credentials with every call, a token in either of
two headers, or only the cookie of an earlier log-on. Some send a body with GET, or JSON without its content type. They
print an error's body unchanged, so it is one line of text: `Error 400: <sentence>`.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpResponse
from django.urls import URLPattern, re_path
from django.utils.crypto import constant_time_compare, salted_hmac
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import NotFound, PermissionDenied
from rest_framework.negotiation import BaseContentNegotiation, DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from accounts.authentication import BasicLogin, BearerToken, XAuthToken
from core.errors import UserError, field_error
from core.rest import PARSERS_WITH_FILES, StrictJSONRenderer, error_response, signed_in
from jobs import actions
from jobs.models import Job
from jobs.permissions import Refusal, Verb, refusal

__all__ = [
    "LIST_PARAMETERS",
    "ConductorView",
    "UnknownAddress",
    "WmlaView",
    "csrf_token_of",
    "json_body",
    "refuse_fields",
    "requested_rows",
    "route",
    "stop",
]

Row = TypeVar("Row", bound=Model)

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_TOKEN = 200
#: Headers in which clients send the `csrftoken` of their log-on.
_TOKEN_HEADERS = ("X-CSRFToken", "csrftoken")
_MAX_ROWS = 1000

#: WMLA's lists are not paginated, so long ones take the parameters of its list of applications.
LIST_PARAMETERS = [
    OpenApiParameter("start", int, description="Number of rows to skip; default 0."),
    OpenApiParameter("length", int, description=f"Maximum number of rows, from 1 to {_MAX_ROWS}; default {_MAX_ROWS}."),
]


class SessionCookie(SessionAuthentication):
    """Authentication by the cookie of a log-on, also of one in the browser.

    The cookie is `SameSite=Lax`, so a browser does not send it with requests of another host's pages, and requests of
    pages at another port are refused by their `Origin` (`webapp.middleware.OwnOrigin`). WMLA's own clients
    (`submit_job.py`) post to the deep learning URLs with only the cookie, so these require no CSRF token. Conductor's
    clients send one, and `ConductorView` requires it.
    """

    def enforce_csrf(self, request: Any) -> None:
        pass


class _AnyAnswer(BaseContentNegotiation):
    """Content negotiation that ignores the Accept header: clients request the wrong type, or octets when they mean
    JSON."""

    _parsers = DefaultContentNegotiation()

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return self._parsers.select_parser(request, parsers)

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type


class WmlaView(APIView):
    """Base class of the deep learning views."""

    authentication_classes = [BearerToken, XAuthToken, BasicLogin, SessionCookie]
    parser_classes = PARSERS_WITH_FILES
    renderer_classes = [StrictJSONRenderer]
    content_negotiation_class = _AnyAnswer
    #: See `core.schema`.
    refuses_in_text = True

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], HttpResponse | None]:
        return _text_error


class ConductorView(WmlaView):
    """Base class of Conductor's views: a change authenticated only by the cookie needs the `csrftoken` of the
    log-on."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.method in _SAFE_METHODS or not isinstance(request.successful_authenticator, SessionCookie):
            return
        given = request.query_params.get("csrftoken") or next(
            filter(None, map(request.headers.get, _TOKEN_HEADERS)), ""
        )
        if not constant_time_compare(given[:_MAX_TOKEN], csrf_token_of(request.session.session_key or "")):
            raise PermissionDenied(
                "The csrftoken is missing or belongs to another session: log on again and send the new one."
            )


@extend_schema(exclude=True)
class UnknownAddress(WmlaView):
    """View of unknown URLs, which returns errors in the same format as the other views."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        raise NotFound


def csrf_token_of(session_key: str) -> str:
    """Return the CSRF token of a session, which other sites cannot know."""
    return salted_hmac("wmla.view.csrf", session_key, algorithm="sha256").hexdigest()


def route(pattern: str, view: type[APIView], name: str, **options: Any) -> URLPattern:
    """Return a route that matches with and without a trailing slash. options: of the view.

    `<exec_id>` matches one segment of the path, and `<path:file>` at the end matches the rest.
    """
    regex = re.sub(r"(?<!P)<(\w+)>", r"(?P<\1>[^/]+)", pattern + "/?$")
    regex = re.sub(r"<path:(\w+)>/\?", r"(?P<\1>.+)", regex)
    return re_path("^" + regex, view.as_view(**options), name=name)


def json_body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body, whatever its declared type; {} for an empty body."""
    raw = request.body
    if not raw.strip():
        return {}
    try:
        given = json.loads(raw)
    except (ValueError, RecursionError):
        raise UserError("The body is not valid JSON: send a JSON object.") from None
    if not isinstance(given, dict):
        raise UserError("The body is JSON, but not an object: send a JSON object.")
    return given


def refuse_fields(body: Mapping[str, Any], advice: Mapping[str, str]) -> None:
    """Refuse unsupported fields that are not empty. advice: field -> what to do instead."""
    for name, sentence in advice.items():
        if body.get(name):
            raise field_error(name, f"{name} is not supported: {sentence}.")


def stop(request: Request, job: Job, name: str) -> None:
    """Stop a training, or refuse if it has ended. name: name of the training in the error."""
    if refusal(Verb.CANCEL, job.state) == Refusal.OVER:
        raise UserError(f"{name} is already stopped.")
    actions.cancel(job.pk, signed_in(request).get_username())


def requested_rows(request: Request, rows: QuerySet[Row, Any]) -> QuerySet[Row, Any]:
    """Return the rows requested by `start` and `length`."""
    start = _number(request, "start", least=0, most=2**31 - 1, default=0)
    length = _number(request, "length", least=1, most=_MAX_ROWS, default=_MAX_ROWS)
    return rows[start : start + length]


def _number(request: Request, name: str, *, least: int, most: int, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 11 and least <= int(text) <= most):
        raise field_error(name, f"Send {name} as a number from {least} to {most}.")
    return int(text)


def _text_error(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    response = error_response(error, context)
    if response is None:
        return None
    sentence = " ".join(str(response.data["error"]).split())
    kept = {name: response[name] for name in ("WWW-Authenticate", "Retry-After", "Allow") if response.has_header(name)}
    text = f"Error {response.status_code}: {sentence}\n"
    return HttpResponse(text, status=response.status_code, content_type="text/plain; charset=utf-8", headers=kept)


class _CookieScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = SessionCookie
    name = "wmlaCookie"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": "tidepool_session"}
