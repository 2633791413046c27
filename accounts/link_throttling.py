"""Throttling of guesses at secret links: ten links that do not exist lock an address out for a quarter of an hour.

django-axes counts guesses by the client's address, as it counts wrong passwords, under a name for each kind of link.
"""

from axes.handlers.proxy import AxesProxyHandler
from django.contrib.auth.signals import user_login_failed
from django.http import HttpRequest

from core.errors import UserError
from core.text import is_storable

__all__ = ["ONE_TIME_LINK", "SHARE_LINK", "count_wrong_guess", "refuse_guessing"]

ONE_TIME_LINK, SHARE_LINK = "one-time link", "share link"


def refuse_guessing(request: HttpRequest, kind: str) -> None:
    """Raises UserError with the code "throttled" for an address with too many wrong guesses."""
    if not AxesProxyHandler.is_allowed(request, {"username": kind}):
        raise UserError("Too many links that do not exist: wait a quarter of an hour.", code="throttled")


def count_wrong_guess(request: HttpRequest, kind: str) -> None:
    """Count a wrong link, outside of the transaction that refused it. A path that cannot be stored is ignored."""
    if is_storable(request.path_info):
        user_login_failed.send(__name__, credentials={"username": kind}, request=request)
