"""What every request passes: static files first, then the log-in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import resolve_url
from rest_framework.permissions import IsAuthenticated
from whitenoise.middleware import WhiteNoiseMiddleware

__all__ = ["PUBLIC_PATHS", "LoginRequired", "StaticFiles"]

#: Everything else needs a log-in. (Static files are answered before it.)
PUBLIC_PATHS = frozenset({"/login/", "/healthz"})


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


class LoginRequired:
    """Refuses everything to strangers, so that a view which forgets to ask is closed and not open."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        if request.path in PUBLIC_PATHS or request.user.is_authenticated:
            return None
        if request.path.startswith("/api/"):
            return None if _asks_itself(view) else _unauthorized()
        return redirect_to_login(request.get_full_path(), resolve_url(settings.LOGIN_URL))


def _asks_itself(view: Callable[..., Any]) -> bool:
    """An API view also takes Basic credentials and tokens, and refuses strangers in its own error shape."""
    return IsAuthenticated in getattr(getattr(view, "cls", None), "permission_classes", [])


def _unauthorized() -> JsonResponse:
    body = {"error": "Log in, or send a token, to use the API.", "code": "not_authenticated", "fields": {}}
    return JsonResponse(body, status=401)
