"""Middleware of every request: static files first, then whose page sends it, then the log-in."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.db import IntegrityError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import resolve_url
from tidepool.version import VERSION, VERSION_HEADER
from whitenoise.middleware import WhiteNoiseMiddleware

from core.constraints import conflict_behind
from core.errors import NotAllowed, TooMany, UserError, field_error
from core.origins import is_own_origin
from core.rest import REFUSALS
from core.roles import SignedIn, refuse_what_viewers_send
from core.scopes import SAFE_METHODS
from core.text import LARGEST_ID, is_storable, shown_text
from webapp.form_pages import form_page, wants_json
from webapp.views import not_found, refused

__all__ = [
    "PUBLIC_NAMES",
    "PUBLIC_PATHS",
    "LoginRequired",
    "OwnOrigin",
    "StaticFiles",
    "StorableValues",
    "TellsVersion",
]

logger = logging.getLogger(__name__)

#: Everything else needs a log-in. (Static files are answered before it.) Some ask for tokens of their own.
PUBLIC_PATHS = frozenset(
    {
        *("/login/", "/healthz", "/ui/tools/dlicmd.py", "/metrics"),
        *("/api/v1/join/", "/api/v1/device/", "/api/v1/device/token/"),
    }
)
#: The same by the names of addresses. Who follows a link has no password, or none yet, and pip has none.
PUBLIC_NAMES = frozenset(
    {"one-time-link", "shared-report", "client-wheel", "oidc-login", "oidc-callback", "oidc-logout"}
)


_FOREIGN = (
    "This was sent by another site's page: open Tidepool itself and repeat the step there. A site in front of it "
    "is named in TIDEPOOL_ORIGINS; a script sends no Origin."
)


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]
    """Whitenoise, but without an iterator: an ASGI server could only collect it in memory, with a warning."""

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponseBase:
        found = static_file.get_response(request.method, request.META)
        content = b"" if found.file is None else found.file.read()
        if found.file is not None:
            found.file.close()
        response = HttpResponse(content, status=int(found.status))
        del response["Content-Type"]
        for name, value in found.headers:
            response[name] = value
        return response


class TellsVersion:
    """Tells programs the site's version with each answer of the API, refusals too: the client says which wheel fits."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if request.path.startswith("/api/"):
            response[VERSION_HEADER] = VERSION
        return response


class OwnOrigin:
    """Refuses what another site's page sends: the browser adds the cookies and passwords that it knows for this one.

    Programs that are no browser send no `Origin`.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        origin = request.headers.get("Origin")
        if origin is None or request.method in SAFE_METHODS:
            return self.get_response(request)
        if is_own_origin(origin, request.get_host(), is_tls=request.is_secure()):
            return self.get_response(request)
        return refused(request, NotAllowed(_FOREIGN))


class LoginRequired:
    """Refuses everything to strangers, and what viewers send, so that a view which forgets to ask is closed.

    Nor does anybody keep what a view answers, unless the view says so: who sits down later would find it.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        response.headers.setdefault("Cache-Control", "private, no-store")
        return response

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        if request.path in PUBLIC_PATHS or _name_of(request) in PUBLIC_NAMES or _asks_itself(view):
            return None
        if not request.user.is_authenticated:
            return _without_log_in(request)
        try:
            refuse_what_viewers_send(request.user, request)
        except NotAllowed as error:
            return refused(request, error)
        return None

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        """Show what a page's view refuses: by `core.roles`, for want of room, or for an address that does not fit.

        A conflict with another request, which no action has caught, is the user's to repeat, too.
        """
        if isinstance(exception, (NotAllowed, TooMany)) or type(exception) is UserError:
            return refused(request, exception)
        if isinstance(exception, IntegrityError) and (conflict := conflict_behind(exception)):
            logger.warning("refused by a constraint: %s", exception)
            return refused(request, conflict)
        return None


class StorableValues:
    """Refuses values that no database can store, before a view looks for them.

    A path with such a name, or with an id beyond the column's range, leads nowhere (404). A NUL character in a
    parameter or a header is refused by its name (400). Forms and serializers refuse it beside the field.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        if not all(map(_can_be_in_a_row, kwargs.values())):
            return not_found(request, Http404())
        field = next(_fields_with_nul(request), None)
        if field is None:
            return None
        name = shown_text(field)
        return refused(request, field_error(name, f"{name} contains a NUL character: remove it."))


def _can_be_in_a_row(value: object) -> bool:
    if isinstance(value, int):
        return value <= LARGEST_ID
    return not isinstance(value, str) or is_storable(value)


def _fields_with_nul(request: HttpRequest) -> Iterator[str]:
    """Yield the names of the parameters and headers that contain NUL."""
    for name, texts in request.GET.lists():
        if "\0" in name or any("\0" in str(text) for text in texts):
            yield name
    for name, text in request.headers.items():
        if "\0" in text:
            yield name


def _asks_itself(view: Callable[..., Any]) -> bool:
    """An API view also takes Basic credentials and tokens, and refuses strangers in its own error shape."""
    return SignedIn in getattr(getattr(view, "cls", None), "permission_classes", [])


def _name_of(request: HttpRequest) -> str | None:
    return request.resolver_match.view_name if request.resolver_match else None


def _without_log_in(request: HttpRequest) -> HttpResponseBase:
    """Refuse a program, and lead a browser to the log-in: from there to the page that it opened or sent a form from."""
    if request.path.startswith("/api/"):
        return _unauthorized(REFUSALS["not_authenticated"])
    if wants_json(request):
        return _unauthorized("You are logged out: log in again.")
    after = None if request.method in SAFE_METHODS else form_page(request)
    return redirect_to_login(after or request.get_full_path(), resolve_url(settings.LOGIN_URL))


def _unauthorized(sentence: str) -> JsonResponse:
    return JsonResponse({"error": sentence, "code": "not_authenticated", "fields": {}}, status=401)
