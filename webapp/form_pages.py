"""Ways back to the page that shows a form, for a browser whose form cannot be answered.

Many forms are sent to an address of their own, which takes nothing but the form. A browser that opens such an address,
after a log-in or by its address bar, gets the page instead.
"""

from collections.abc import Callable
from urllib.parse import urlsplit

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import Resolver404, resolve

from core.origins import is_own_origin
from core.scopes import SAFE_METHODS

__all__ = ["FormAddresses", "form_page", "is_of_browser", "wants_json"]

#: Addresses that programs use; their refusals stay as they are.
_FOR_PROGRAMS = ("/api/", "/platform/", "/auth/", "/v1/preauth/")


class FormAddresses:
    """Leads a browser that opens an address of a form to the nearest page above that address."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        is_opened = request.method in SAFE_METHODS and is_of_browser(request)
        if response.status_code != 405 or not is_opened or request.path.startswith(_FOR_PROGRAMS):
            return response
        query = request.META.get("QUERY_STRING", "")
        return redirect(f"{_page_above(request.path)}{'?' if query else ''}{query}")


def is_of_browser(request: HttpRequest) -> bool:
    """Return whether a browser opens the address or sends a form, and shows the answer as a page."""
    return "text/html" in request.headers.get("Accept", "")


def wants_json(request: HttpRequest) -> bool:
    """Return whether a script of a page asks, which reads an answer in JSON only."""
    return request.headers.get("Accept") == "application/json"


def form_page(request: HttpRequest) -> str | None:
    """Return the path and query of the page that a form was sent from; None if the browser does not name a page."""
    try:
        page = urlsplit(request.headers.get("Referer", ""))
    except ValueError:
        return None
    origin = f"{page.scheme}://{page.netloc}"
    if not is_own_origin(origin, request.get_host(), is_tls=request.is_secure()):
        return None
    return f"{page.path or '/'}{'?' if page.query else ''}{page.query}"


def _page_above(path: str) -> str:
    """Return the nearest address above the path that the site has. It may be a form's, too, which leads further up."""
    above = path.rstrip("/")
    while above := above.rpartition("/")[0]:
        try:
            resolve(f"{above}/")
        except Resolver404:
            continue
        return f"{above}/"
    return "/"
