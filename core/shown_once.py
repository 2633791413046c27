"""Secrets that are shown once: the answer to the form is a page of its own, which a reload or a log-in shows again.

Until it expires, the secret is in a signed cookie of the browser that has just been shown it. The server stores none.
"""

from typing import Any

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from core.pages import login_user

__all__ = ["redirect_showing", "shown_once"]

#: Time for which a page shows a new secret again.
_SHOWN_MINUTES = 10
_COOKIE = "tidepool_shown"
_SALT = "tidepool.shown_once"


def redirect_showing(request: HttpRequest, page: str, **shown: Any) -> HttpResponse:
    """Redirect to the page, which shows these values, as JSON knows them, to this user of this browser only."""
    path = page.partition("#")[0]
    content = {"user": login_user(request).pk, "page": path, "shown": shown}
    response = redirect(page)
    response.set_cookie(
        _COOKIE,
        signing.dumps(content, salt=_SALT),
        max_age=_SHOWN_MINUTES * 60,
        path=path,
        secure=bool(settings.SESSION_COOKIE_SECURE),
        httponly=True,
        samesite="Strict",
    )
    return response


def shown_once(request: HttpRequest) -> dict[str, Any] | None:
    """Return the values that this page shows, and for how many minutes; None if there are none, or no more."""
    try:
        content = signing.loads(request.COOKIES.get(_COOKIE, ""), salt=_SALT, max_age=_SHOWN_MINUTES * 60)
    except signing.BadSignature:
        return None
    is_meant = (content["user"], content["page"]) == (login_user(request).pk, request.path)
    return {**content["shown"], "minutes": _SHOWN_MINUTES} if is_meant else None
